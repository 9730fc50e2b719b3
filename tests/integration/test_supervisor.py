"""What dies of a site that `headway up` started comes back by itself."""

import json
import os
import signal
from pathlib import Path
from typing import Any

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


def test_guard_and_supervisor_come_back_though_both_die_at_once(process_site: LiveSite) -> None:
    before = process_site.pids()
    for name in ("guard", "supervisor"):  # who would bring back each other
        os.kill(before[name], signal.SIGKILL)
    for name in ("supervisor", "guard"):
        wait_for(lambda name=name: back(process_site, name, before[name]), process_site.worker_log)


def test_a_worker_that_was_stopped_is_not_said_to_be_well_and_up_starts_another(
    process_site: LiveSite,
) -> None:
    before = process_site.worker_pid()
    process_site.kill(before, signal.SIGSTOP)

    def found() -> dict[str, Any]:
        done = process_site.run("doctor", "--json")
        return {each["what"]: each for each in json.loads(done.stdout)}["worker of this node"]

    wait_for(lambda: not found()["ok"], lambda: str(found()))
    assert f"process {before} was stopped (SIGSTOP); run `headway up`" in found()["found"]
    done = process_site.run("up", "--json")
    assert done.returncode == 0, done.stderr
    assert "worker" in json.loads(done.stdout)["started"]
    assert back(process_site, "worker", before)
    assert found()["ok"]


@pytest.mark.parametrize("name", ["worker", "server", "scheduler"])
def test_what_was_killed_comes_back(process_site: LiveSite, tmp_path: Path, name: str) -> None:
    before = process_site.pids()[name]
    process_site.kill(before)
    wait_for(lambda: back(process_site, name, before), lambda: said(process_site))
    assert f"there is no {name}: it is started" in said(process_site)
    wait_for(lambda: healthy(process_site), lambda: said(process_site))
    process_site.until(process_site.submit(tmp_path, name=f"after-{name}"), "Completed")


def test_a_scheduler_that_was_stopped_is_replaced_and_leads_no_more(
    process_site: LiveSite, tmp_path: Path
) -> None:
    before = process_site.pids()["scheduler"]
    process_site.kill(before, signal.SIGSTOP)
    wait_for(lambda: back(process_site, "scheduler", before), lambda: said(process_site))
    process_site.until(process_site.submit(tmp_path, name="after-stop"), "Completed")
    assert not psutil.pid_exists(before)


def healthy(site: LiveSite) -> bool:
    with site.server() as server:
        return server.is_healthy()


def said(site: LiveSite) -> str:
    return (site.home / "state/supervisor.log").read_text()
