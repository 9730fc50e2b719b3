"""Runs kept to their GPU memory by the driver: a whole site on the stub of driver r615."""

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.runtime.run_groups import RunGroups
from headway.units import GIB, MIB
from tests.nvml.stub import StubGpus, build_stub
from tests.support.site import LiveSite, live_site, wait_for

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups"),
]

HOLD = {"command": ["python", "-c", "import time; time.sleep(600)"]}


def job(**more: object) -> dict[str, object]:
    gpu = {"gpus": 1, "gpu_memory": "10GiB"}
    return HOLD | {"resources": {"host_memory": "128MiB", "cpus": 0.1, **gpu, **more}}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> StubGpus:
    folder = tmp_path_factory.mktemp("r615")
    for each in (folder, folder.parent):
        each.chmod(0o755)
    driver = StubGpus(folder / "gpus.state")
    driver.add("GPU-a", total=24 * GIB)
    driver.fail(limits=1)
    return driver


@pytest.fixture(scope="module")
def limited(driver: StubGpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    folder = tmp_path_factory.mktemp("limited")
    env = driver.environment(build_stub(folder))
    with live_site(folder / "home", "process", **env) as site:
        yield site


def kept_by(site: LiveSite) -> tuple[str, str]:
    (gpu,) = site.json("nodes")[0]["gpus"]
    return gpu["memory_kept_by"], gpu["memory_kept_why"]


def gone(driver: StubGpus) -> None:
    wait_for(lambda: not driver.limits, lambda: f"left: {driver.limits}")


def test_a_run_starts_under_its_limit_which_goes_before_its_group(
    limited: LiveSite, driver: StubGpus, tmp_path: Path
) -> None:
    assert kept_by(limited) == ("driver_limit", "")
    assert driver.limits == {}  # of what the agent tried out nothing is left
    assert "kept by the driver" in " ".join(limited.run("nodes").stdout.split())
    assert "kept by: driver_limit" in " ".join(limited.run("doctor").stdout.split())
    whole = limited.submit(tmp_path, name="whole", **job(sharing="whole"))
    limited.until(whole, "Running")
    assert driver.limits == {}  # it has all of it
    limited.run("cancel", whole)
    runs = [limited.submit(tmp_path, name=name, **job()) for name in ("one", "two")]
    for run_id in runs:
        limited.until(run_id, "Running")
    # Its part of the reserve of half a GiB comes to the grant.
    assert set(driver.limits.values()) == {
        10 * GIB * 24 * GIB // (24 * GIB - 512 * MIB) // MIB * MIB
    }
    groups = [Path(group) for _, group in driver.limits]
    assert len(groups) == 2
    assert all((group / "cgroup.procs").read_text() for group in groups)
    limited.run("cancel", runs[0])
    limited.until(runs[0], "Cancelled")
    wait_for(lambda: len(driver.limits) == 1, lambda: str(driver.limits))
    # Whoever follows the other one is killed, and its program: another process cleans up.
    (group,) = [Path(group) for _, group in driver.limits]
    limited.kill(limited.worker_pid())
    for pid in map(int, (group / "cgroup.procs").read_text().split()):
        os.kill(pid, signal.SIGKILL)
    assert limited.run("up").returncode == 0
    wait_for(
        lambda: limited.show(runs[1])["attempt"] == 2 and len(driver.limits) == 1,
        lambda: f"{limited.show(runs[1])} {driver.limits}",
    )
    assert list(driver.limits) != [("GPU-a", str(group))]  # it is tried again under its own
    assert not group.exists()
    limited.run("cancel", runs[1])
    limited.until(runs[1], "Cancelled")
    gone(driver)


def test_what_a_killed_process_left_is_taken_back(limited: LiveSite, driver: StubGpus) -> None:
    """Before its group goes: the stub keeps a limit whose group went without that."""
    site = hashlib.sha256(str(limited.home.resolve()).encode()).hexdigest()[:12]
    group = RunGroups(site).gpu_group("ghost")
    assert group is not None
    driver.limit("GPU-a", group, GIB)
    assert driver.limits == {("GPU-a", str(group)): GIB}
    wait_for(lambda: not group.exists(), lambda: f"{group} stays")
    assert driver.limits == {}


def test_a_limit_that_does_not_take_starts_nothing_before_that_is_said(
    limited: LiveSite, driver: StubGpus, tmp_path: Path
) -> None:
    driver.fail(limits=2)
    try:
        run_id = limited.submit(tmp_path, name="untaken", **job())
        view = limited.until(run_id, "Running")
        by, why = kept_by(limited)
        assert (by, view["attempt"]) == ("watch", 1)
        assert "at a run's start: GPU GPU-a takes no limit of" in why
        assert "it holds nothing afterwards" in why
        assert driver.limits == {}
        limited.set_knobs(silent_after_s=200.0)  # a setting that changes does not bring it back
        assert kept_by(limited) == (by, why)
    finally:
        driver.fail(limits=1)
        limited.run("cancel", run_id)
    limited.until(run_id, "Cancelled")
    limited.kill(limited.worker_pid())
    assert limited.run("up").returncode == 0
    assert kept_by(limited) == ("driver_limit", "")
