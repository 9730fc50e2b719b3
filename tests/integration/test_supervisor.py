"""What dies of a site that `headway up` started comes back by itself."""

from pathlib import Path

import psutil
import pytest

from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.prefect


def back(site: LiveSite, name: str, before: int) -> bool:
    now = site.pids().get(name, before)
    return now != before and psutil.pid_exists(now)


@pytest.mark.parametrize("name", ["database", "guard", "gateway"])
def test_what_looks_after_runs_comes_back(process_site: LiveSite, name: str) -> None:
    before = process_site.pids()[name]
    process_site.kill(before)
    wait_for(lambda: back(process_site, name, before), lambda: said(process_site))
    wait_for(lambda: process_site.run("runs").returncode == 0, lambda: said(process_site))


def test_the_supervisor_comes_back_too(process_site: LiveSite) -> None:
    before = process_site.pids()["supervisor"]
    process_site.kill(before)
    guard_log = process_site.home / "state/guard.log"
    wait_for(lambda: back(process_site, "supervisor", before), guard_log.read_text)


@pytest.mark.parametrize("name", ["worker", "server"])
def test_what_was_killed_comes_back(process_site: LiveSite, tmp_path: Path, name: str) -> None:
    before = process_site.pids()[name]
    process_site.kill(before)
    wait_for(lambda: back(process_site, name, before), lambda: said(process_site))
    assert f"the {name} has died: it is started again" in said(process_site)
    wait_for(lambda: healthy(process_site), lambda: said(process_site))
    process_site.until(process_site.submit(tmp_path, name=f"after-{name}"), "Completed")


def healthy(site: LiveSite) -> bool:
    with site.server() as server:
        return server.is_healthy()


def said(site: LiveSite) -> str:
    return (site.home / "state/supervisor.log").read_text()
