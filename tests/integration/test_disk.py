"""Runs that write more than they may, on both runtimes; what an image's volumes let them write."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import docker
import pytest

from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.run import Exit, ExitKind, RunState
from headway.run.follow import Watched
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.this_node import adopt, join_site
from headway.units import GIB, MIB
from tests.support.leading import admitted
from tests.support.postgresql import with_ledger
from tests.support.queued import begun

RUN = "00000000-0000-4000-8000-000000000007"
VOLUME_IMAGE = "headway-test/volume:local"


class Silent:
    """Nobody is told."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        pass

    def watched(self, now: Watched) -> None:
        pass


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "docker":
        request.getfixturevalue("busybox_image")
    yield from _site(tmp_path, request.param)


@pytest.fixture
def docker_node(tmp_path: Path, busybox_image: str) -> Iterator[Site]:
    client = docker.from_env()
    recipe = BytesIO(f"FROM {busybox_image}\nVOLUME /scratch\n".encode())
    client.images.build(fileobj=recipe, tag=VOLUME_IMAGE, rm=True)
    client.close()
    yield from _site(tmp_path, "docker")


def _site(home: Path, runtime: str) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(home), runtime=runtime, node="here"), SystemClock())  # type: ignore[arg-type]
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def run(
    site: Site,
    command: str,
    image: str = "headway-test/busybox:local",
    disk: str | None = "4MiB",
    **more: str,
) -> Exit:
    job = TrainingJob(
        name="writer",
        image=image,
        command=["sh", "-c", command],
        resources=Resources(host_memory="64MiB", cpus=0.5, disk=disk),
        **more,  # type: ignore[arg-type]
    )
    attempt = begun(site, RUN, job)
    lease = admitted(attempt)
    followed = attempt.train(lease, dict, Silent())
    exit_, measured = attempt.settle(followed)
    attempt.clean_up()
    assert measured.disk_peak_bytes is not None
    assert measured.disk_peak_bytes > 0
    return exit_


def write(place: str, size: int = 16) -> str:
    return f'dd if=/dev/zero of="{place}/big" bs=1M count={size}'


@pytest.mark.parametrize("then", ["; exec sleep 120", ""], ids=["goes on", "ends"])
@pytest.mark.parametrize("place", ["$HEADWAY_OUTPUTS", "$HEADWAY_CHECKPOINT"])
def test_who_writes_more_than_asked_for_is_ended(site: Site, place: str, then: str) -> None:
    exit_ = run(site, write(place) + then)
    assert exit_.kind is ExitKind.FAILED
    assert exit_.message.startswith("resources.disk: used 16 MiB")
    assert " of 4.0 MiB (16 MiB " in exit_.message
    assert "outputs, checkpoint and log" in exit_.message
    assert site.ledger.runs.get(RUN).state is RunState.ENDED  # it is not tried again


def test_a_log_counts_too(site: Site) -> None:
    exit_ = run(site, "head -c 8388608 /dev/zero; exec sleep 120")
    assert exit_.message.startswith("resources.disk: used 8.")


@pytest.mark.parametrize("what", ["yes", "while :; do printf '\\r\\r\\r\\r'; done"])
def test_no_flood_of_log_keeps_a_time_limit_from_coming(site: Site, what: str) -> None:
    exit_ = run(site, what, disk="4GiB", max_runtime="2s", stop_grace="1s")
    assert exit_.kind is ExitKind.TIMED_OUT
    attempt = site.ledger.attempts.of_run(RUN)[-1]
    assert attempt.measurement is not None
    assert attempt.measurement.runtime_s < 10.0


def test_who_keeps_to_it_runs_to_its_end(site: Site) -> None:
    assert run(site, write("$HEADWAY_OUTPUTS", 2)).kind is ExitKind.OK


def test_without_a_word_a_run_leaves_the_nodes_reserve(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A disk that is nearly full, though this machine's is not.
    full = (MIB, GIB, 0, 0)
    monkeypatch.setattr("headway.runtime.diskuse._disk", lambda folders: full if folders else None)
    adopt(site, "node/here", {"reserve_disk": "16MiB"})
    exit_ = run(site, write("$HEADWAY_OUTPUTS", 8) + "; exec sleep 120", disk=None)
    assert exit_.kind is ExitKind.FAILED
    assert "1.0 MiB left, its reserve is 16 MiB, and this run has used 8." in exit_.message


@pytest.mark.docker
@pytest.mark.parametrize("place", ["/scratch", "/var"])
def test_what_is_written_elsewhere_in_a_container_counts(docker_node: Site, place: str) -> None:
    # The container's own root belongs to root: so does its program here.
    docker_node.__dict__["user_of"] = lambda team: "0:0"
    made = f"mkdir -p {place}; " if place == "/var" else ""
    exit_ = run(docker_node, f"{made}{write(place)}; exec sleep 120", VOLUME_IMAGE)
    assert exit_.message.startswith("resources.disk: used 16 MiB")
    assert "16 MiB elsewhere in its container" in exit_.message


@pytest.mark.docker
def test_a_read_only_root_has_no_volume_on_the_disk(docker_node: Site) -> None:
    adopt(docker_node, POLICY, {"root_filesystem": "read_only"})
    docker_node.__dict__["user_of"] = lambda team: "0:0"
    exit_ = run(
        docker_node, write("/scratch", 2) + "; grep ' /scratch ' /proc/mounts", VOLUME_IMAGE
    )
    assert exit_.kind is ExitKind.OK
    log = (docker_node.settings.runs_dir / RUN / "log/attempt-1.log").read_text()
    assert "tmpfs /scratch" in log
