"""Secrets of an attempt, on a real ledger and both runtimes: as files, and in no log."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.gateway.actions import cancel_in_ledger
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.node.janitor import Janitor
from headway.run.attempt import Attempt
from headway.run.follow import Watched
from headway.run.followed import Followed
from headway.run.here import log_piece
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.this_node import adopt, join_site
from tests.support.leading import admitted
from tests.support.postgresql import with_ledger
from tests.support.queued import begun
from tests.support.site import LiveSite, wait_for

RUN = "00000000-0000-4000-8000-000000000005"
VALUE = "kei-ge/heim 42+"
ENCODED = base64.b64encode(f"user:{VALUE}".encode()).decode()
PROGRAM = """\
value=$(cat "$HUB_FILE"); echo "key $value"
printf 'user:%s' "$value" | base64
printf '%.6s' "$value"; sleep 1; echo "$value end" | cut -c7-
env
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    runtime = request.param
    if runtime == "docker":
        request.getfixturevalue("busybox_image")
    # A site of its own: its home names its containers.
    site = Site(Settings(home=with_ledger(tmp_path), runtime=runtime, node="here"), SystemClock())
    join_site(site)
    yield site
    for container in site.runtime.containers():
        site.runtime.remove(container.name)


def job(command: str = PROGRAM, block: str = "job-hub") -> TrainingJob:
    return TrainingJob(
        name="job",
        image="headway-test/busybox:local",
        command=["sh", "-c", command],
        resources=Resources(host_memory="64MiB", cpus=0.1),
        secrets={"HUB": block},
    )


class Listener:
    """What would be sent to Prefect."""

    def __init__(self) -> None:
        self.data = b""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        assert skipped_bytes == 0
        self.data += data

    def watched(self, now: Watched) -> None:
        pass


def train(site: Site, listener: Listener, command: str = PROGRAM) -> tuple[Attempt, Followed]:
    attempt = begun(site, RUN, job(command))
    attempt.stage_data(lambda *_: None)
    lease = admitted(attempt)
    return attempt, attempt.train(lease, lambda: {"HUB": VALUE}, listener)


def everything_below(home: Path) -> bytes:
    files = [path for path in home.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)


def in_the_engine(site: Site, container: str) -> str:
    if site.runtime.kind is not RuntimeKind.DOCKER:
        return ""
    client = docker.from_env()
    try:
        return json.dumps(client.api.inspect_container(container))
    finally:
        client.close()


def test_a_secret_is_a_file_of_its_program_and_in_no_log(site: Site) -> None:
    listener = Listener()
    attempt, followed = train(site, listener)
    assert VALUE not in in_the_engine(site, attempt.container)
    folder = site.settings.secrets_dir / attempt.container
    stat = (folder / "HUB").stat()
    assert stat.st_mode & 0o777 == 0o400
    owner = site.user_of("default") or f"{os.geteuid()}:{os.getegid()}"
    assert f"{stat.st_uid}:{stat.st_gid}" == owner
    stars = "*" * len(VALUE)
    text = listener.data.decode()
    assert f"key {stars}\n" in text  # it was read
    assert f"{stars} end\n" in text  # and in two pieces
    assert "HUB_FILE=" in text
    exit_, _ = attempt.settle(followed)
    assert exit_.kind.value == "ok", text
    for seen in (text, followed.log_tail, exit_.message):
        assert "heim" not in seen
        assert ENCODED[8:20] not in seen
    attempt.clean_up()
    assert list(site.settings.secrets_dir.iterdir()) == []
    assert b"heim" not in everything_below(site.settings.home)
    assert log_piece(site.settings, RUN, 1, 0, whole=True).data == listener.data


def test_what_a_killed_flow_left_is_removed(site: Site) -> None:
    class Killed(BaseException):
        pass

    class Kill(Listener):
        def watched(self, now: Watched) -> None:
            if b"late" in self.data:
                raise Killed

    killer = Kill()
    with pytest.raises(Killed):
        train(site, killer, 'echo late; cat "$HUB_FILE"; echo; sleep 0.5; cat "$HUB_FILE"')
    (container,) = site.runtime.containers()
    site.runtime.wait(container.name, 20)
    cancel_in_ledger(site.ledger, RUN, "")
    janitor = Janitor(site)

    def is_gone() -> bool:
        janitor.round(janitor.unsettled(), frozenset())
        janitor.wait_for_stops()
        return not list(site.settings.secrets_dir.iterdir())

    wait_for(is_gone, lambda: str(list(site.settings.secrets_dir.iterdir())))
    assert site.runtime.containers() == []
    log = site.settings.runs_dir / RUN / "log/attempt-1.log"
    stars = "*" * len(VALUE)
    assert log.read_text() == f"late\n{stars}\n{stars}"


def test_a_block_that_jobs_may_not_use_is_refused_before_anything_is_done(site: Site) -> None:
    attempt = begun(site, RUN, job(block="admin-password"))
    with pytest.raises(InvalidInput) as refused:
        attempt.stage_data(lambda *_: None)
    assert str(refused.value) == (
        'secrets.HUB: got "admin-password"; jobs may not use this block on this site; '
        "name a block job-…"
    )
    adopt(site, POLICY, {"secret_prefixes": ["admin-"]})
    attempt.stage_data(lambda *_: None)
    adopt(site, POLICY, {"secret_prefixes": [""]})
    with pytest.raises(InvalidInput, match="leave it out"):
        attempt.stage_data(lambda *_: None)


def test_a_secret_that_cannot_be_struck_out_starts_nothing(site: Site) -> None:
    attempt = begun(site, RUN, job())
    lease = admitted(attempt)
    with pytest.raises(InvalidInput, match="4 to 65536 characters"):
        attempt.train(lease, lambda: {"HUB": "abc"}, Listener())
    assert site.runtime.containers() == []


MAKE = """\
from prefect.blocks.core import Block
from prefect.blocks.system import Secret

class Unused(Block):
    pass

for name in ("job-live", "admin-live"):
    Secret(value="blocks-own-value").save(name, overwrite=True)
"""


@pytest.mark.prefect
def test_a_job_reads_a_block_of_the_site(process_site: LiveSite, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(MAKE)
    made = process_site.prefect("block", "register", "--file", str(tmp_path / "make.py"))
    assert made.returncode == 0, made.stdout + made.stderr
    program = (
        "import os, pathlib, sys\n"
        "value = pathlib.Path(os.environ['KEY_FILE']).read_text()\n"
        "print('read', value, len(value), flush=True)\nsys.exit(f'failed with {value}')\n"
    )
    wanted: dict[str, Any] = {"command": ["python", "-c", program], "secrets": {"KEY": "job-live"}}
    run_id = process_site.submit(tmp_path, name="keyed", **wanted)
    view = process_site.until(run_id, "Failed")
    assert view["exit"]["kind"] == "failed"
    log = process_site.run("logs", run_id).stdout
    assert log.splitlines()[0] == f"read {'*' * 16} 16"
    seen = [log, *process_site.logged(run_id), json.dumps(view)]
    assert "blocks-own-value" not in "".join(seen)
    assert list((process_site.home / "secrets").iterdir()) == []
    path = tmp_path / "refused.json"
    path.write_text(
        json.dumps(
            {
                "name": "no",
                "image": "i",
                "command": ["x"],
                "secrets": {"KEY": "admin-live"},
            }
        )
    )
    done = process_site.run("submit", str(path), "--dry-run")
    assert done.returncode == 2
    assert f"{path}:1 secrets.KEY: got " in done.stderr
