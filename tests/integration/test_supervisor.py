"""What dies of a site that `headway up` started comes back by itself."""

import json
from pathlib import Path

import psutil
import pytest

from tests.support.site import LiveSite, live_site, wait_for

pytestmark = pytest.mark.prefect


def pid_of(site: LiveSite, name: str) -> int:
    pid: int = json.loads((site.home / f"state/{name}.json").read_text())["pid"]
    return pid


def back(site: LiveSite, name: str, before: int) -> bool:
    return pid_of(site, name) != before and psutil.pid_exists(pid_of(site, name))


@pytest.mark.parametrize("name", ["database", "guard"])
def test_what_looks_after_runs_comes_back(process_site: LiveSite, name: str) -> None:
    before = pid_of(process_site, name)
    process_site.kill(before)
    wait_for(lambda: back(process_site, name, before), lambda: said(process_site))
    wait_for(lambda: process_site.run("runs").returncode == 0, lambda: said(process_site))


def test_the_supervisor_comes_back_too(process_site: LiveSite) -> None:
    before = pid_of(process_site, "supervisor")
    process_site.kill(before)
    guard_log = process_site.home / "state/guard.log"
    wait_for(lambda: back(process_site, "supervisor", before), guard_log.read_text)


@pytest.mark.parametrize("name", ["worker", "server"])
def test_what_was_killed_comes_back(process_site: LiveSite, tmp_path: Path, name: str) -> None:
    before = pid_of(process_site, name)
    process_site.kill(before)
    wait_for(lambda: back(process_site, name, before), lambda: said(process_site))
    assert f"the {name} has died: it is started again" in said(process_site)
    wait_for(lambda: healthy(process_site), lambda: said(process_site))
    process_site.until(process_site.submit(tmp_path, name=f"after-{name}"), "Completed")


def test_down_ends_it_first(tmp_path: Path) -> None:
    with live_site(tmp_path / "home", "process") as site:
        names = ("supervisor", "guard", "server", "worker")
        pids = [pid_of(site, name) for name in names]
        assert site.run("down").returncode == 0
        assert not any(lives(pid) for pid in pids)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def healthy(site: LiveSite) -> bool:
    with site.server() as server:
        return server.is_healthy()


def said(site: LiveSite) -> str:
    return (site.home / "state/supervisor.log").read_text()
