"""What a user asks for happens, and Prefect says of every run what the ledger says."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.model.run import RunState
from headway.settings import Settings, read_settings
from headway.site import Site
from tests.faults.test_kills import assert_nothing_is_left, started
from tests.support.api import cut_off
from tests.support.site import (
    PATIENCE_S,
    LiveSite,
    sleeper,
    wait_for,
    within_this_process,
)

pytestmark = pytest.mark.prefect

RESUMING = """\
import os, pathlib, signal, sys, time
checkpoint = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"]) / "step"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("from step", step, flush=True)
def save(*_):
    checkpoint.write_text("7")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
if step < 7:
    time.sleep(600)
"""
"""Writes its checkpoint when it is told to stop, and ends at once when it finds one."""


@pytest.fixture
def ledger(process_site: LiveSite) -> Any:
    with mock.patch.dict(os.environ, process_site.env, clear=True):
        opened = Ledger.open(read_settings().database_url)
    yield opened
    opened.close()


def set_state(site: LiveSite, run_id: str, **state: Any) -> None:
    """As the buttons of Prefect's page do."""
    site.call("POST", f"flow_runs/{run_id}/set_state", {"state": state, "force": True})


def at_once(look: Callable[[], Any]) -> None:
    """Wait for a moment that is short."""
    end = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def log_has(site: LiveSite, run_id: str, text: str) -> None:
    wait_for(
        lambda: text in site.run("logs", run_id).stdout,
        lambda: f"no {text!r} in {site.run('logs', run_id).stdout!r}\n{site.worker_log()}",
    )


def resuming(site: LiveSite, tmp_path: Path, name: str, **job: Any) -> str:
    run_id = site.submit(tmp_path, name=name, command=["python", "-c", RESUMING], **job)
    site.until(run_id, "Running")
    log_has(site, run_id, "from step 0")
    return run_id


@contextmanager
def nobody_leads(site: LiveSite) -> Iterator[None]:
    """Meanwhile there is no scheduler."""
    pids = site.pids()
    site.kill(pids["supervisor"], signal.SIGSTOP)  # it would start another one
    try:
        site.kill(pids["scheduler"])
        yield
    finally:
        site.kill(pids["supervisor"], signal.SIGCONT)


def told(ledger: Ledger, run_id: str) -> bool:
    return ledger.runs.get(run_id).told_end_at is not None


def test_a_run_whose_worker_was_replaced_is_cancelled_all_the_same(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    """Prefect's observer of cancels died with the worker that started the flow."""
    site = process_site
    run_id = started(site, tmp_path, "cancel-adopted", steps=2400)
    site.kill(site.worker_pid())
    assert site.run("up").returncode == 0
    assert site.flow_pid(run_id)
    # What another node's worker writes for a run that it takes for one that waits.
    set_state(site, run_id, type="SCHEDULED", name="AwaitingHeadroom", message="late")
    assert site.until(run_id, "Running")["attempt"] == 1
    assert site.json("cancel", "cancel-adopted")["state"] == "Cancelling"
    view = site.until(run_id, "Cancelled", "Crashed", "Failed", "Completed")
    assert (view["state"], view["exit"]["kind"]) == ("Cancelled", "cancelled"), view
    assert_nothing_is_left(site, run_id)
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")


def test_a_cancel_reaches_its_node_though_no_scheduler_leads(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = started(site, tmp_path, "cancel-without-a-leader", steps=2400)
    with nobody_leads(site):
        site.json("cancel", run_id)
        assert_nothing_is_left(site, run_id)
        assert not told(ledger, run_id)
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")
    assert site.until(run_id, "Cancelled")["exit"]["kind"] == "cancelled"


def test_a_cancel_in_prefect_is_heard_by_those_who_come_after_scheduler_and_worker(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = started(site, tmp_path, "cancel-unheard", steps=2400)
    for name in ("scheduler", "worker"):
        site.kill(site.pids()[name])
    set_state(site, run_id, type="CANCELLING")
    view = site.until(run_id, "Cancelled", "Crashed", "Failed", "Completed")
    assert (view["state"], view["exit"]["kind"]) == ("Cancelled", "cancelled"), view
    assert_nothing_is_left(site, run_id)
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")


def test_why_a_run_waited_that_is_written_behind_its_end_does_not_run_it_again(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = site.submit(tmp_path, name="late-page", command=["true"])
    site.until(run_id, "Completed")
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")
    set_state(site, run_id, type="SCHEDULED", name="AwaitingHeadroom", message="needs 2 CPUs")
    assert site.until(run_id, "Completed")["attempt"] == 1


def test_a_run_is_cancelled_although_no_prefect_server_answers(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = started(site, tmp_path, "cancel-in-an-outage", steps=2400)
    here = Site(Settings(home=site.home, port=site.port), SystemClock(), lambda _: ledger)
    with cut_off(here) as env:
        done = within_this_process(("cancel", "cancel-in-an-outage", "--json"), env)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["run_id"], said["state"], said["told"]) == (run_id, "Cancelling", False)
    view = site.until(run_id, "Cancelled", "Crashed", "Failed", "Completed")
    assert (view["state"], view["exit"]["kind"]) == ("Cancelled", "cancelled"), view
    assert "cancelled by user root" in view["exit"]["message"]
    assert_nothing_is_left(site, run_id)
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")
    again = site.run("cancel", "cancel-in-an-outage")
    assert "it had ended before, nothing was cancelled" in again.stdout, again


def test_a_flow_killed_behind_the_end_of_its_run_leaves_the_state_of_the_ledger(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    """At the end of its clean-up: nothing is held any more, and Prefect hears of a crash."""
    site = process_site
    run_id = started(site, tmp_path, "kill-in-clean-up", steps=4)
    pid = site.flow_pid(run_id)
    at_once(lambda: ledger.leases.of_run(run_id) is None)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: told(ledger, run_id), lambda: f"{site.show(run_id)} {site.worker_log()}")
    assert site.until(run_id, "Completed", "Crashed")["state"] == "Completed"
    assert_nothing_is_left(site, run_id)


def test_a_flow_told_to_leave_behind_the_end_of_its_run_does_not_crash(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    """As by a janitor that looked before the clean-up and acts after it."""
    site = process_site
    run_id = started(site, tmp_path, "term-in-clean-up", steps=4)
    pid = site.flow_pid(run_id)
    at_once(lambda: ledger.runs.get(run_id).exit)
    with suppress(ProcessLookupError):
        for _ in range(400):
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.005)
    wait_for(lambda: told(ledger, run_id), lambda: f"{site.show(run_id)} {site.worker_log()}")
    assert_nothing_is_left(site, run_id)
    states = site.call("GET", f"flow_run_states/?flow_run_id={run_id}")
    assert states[-1]["type"] == "COMPLETED", states
    assert "CRASHED" not in {each["type"] for each in states}, states


@pytest.mark.parametrize("said", ["CRASHED", "CANCELLING"])
def test_a_state_that_does_not_say_what_the_ledger_says_is_corrected(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger, said: str
) -> None:
    """As a cancel in the run's last second, or a report of a crash that came late."""
    site = process_site
    run_id = site.submit(tmp_path, name="late", command=["true"])
    at_once(lambda: [run.exit for run in ledger.runs.of([run_id]).values() if run.exit])
    at_once(lambda: ledger.leases.of_run(run_id) is None)
    set_state(site, run_id, type=said)
    wait_for(lambda: told(ledger, run_id), lambda: f"{site.show(run_id)} {site.worker_log()}")
    assert site.until(run_id, "Completed", said.title())["state"] == "Completed"


def test_a_run_that_has_ended_is_retried_from_its_checkpoint_and_once(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    """Cancelled, retried by command; completed, retried by the button."""
    site = process_site
    run_id = resuming(site, tmp_path, "retried")
    site.json("cancel", run_id)
    site.until(run_id, "Cancelled")
    assert (site.home / "runs" / run_id / "checkpoint/step").read_text() == "7"
    assert site.json("retry", "retried")["attempt"] == 2
    wait_for(
        lambda: ledger.runs.get(run_id).attempt == 2 and told(ledger, run_id),
        lambda: f"{site.show(run_id)} {site.worker_log()}",
    )
    assert site.until(run_id, "Completed")["attempt"] == 2
    assert "from step 7" in site.run("logs", run_id).stdout
    assert not (site.home / "runs" / run_id / "checkpoint").exists()
    set_state(site, run_id, type="SCHEDULED", name="AwaitingRetry", message="Retry from the UI")
    wait_for(
        lambda: ledger.runs.get(run_id).attempt == 3,
        lambda: f"{site.show(run_id)} {site.worker_log()}",
    )
    log_has(site, run_id, "from step 0")
    site.json("cancel", run_id)
    site.until(run_id, "Cancelled")
    wait_for(lambda: told(ledger, run_id), lambda: "its end was not told")
    assert ledger.runs.get(run_id).attempt == 3


def test_a_retry_is_not_lost_that_comes_before_anybody_has_noted_the_end(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = started(site, tmp_path, "retried-at-once", steps=4)
    with nobody_leads(site):
        site.until(run_id, "Completed")
        assert not told(ledger, run_id)
        set_state(site, run_id, type="SCHEDULED", name="AwaitingRetry", message="Retry from the UI")
    wait_for(
        lambda: ledger.runs.get(run_id).attempt == 2 and told(ledger, run_id),
        lambda: f"{site.show(run_id)} {site.worker_log()}",
    )


def test_a_suspended_run_frees_its_place_and_goes_on_when_resumed(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    run_id = resuming(site, tmp_path, "suspended", retries=0)
    soon = "2000-01-01T00:00:00Z"  # the page gives every pause an end: then the run would fail
    details = {"pause_timeout": soon, "pause_reschedule": True}
    set_state(site, run_id, type="PAUSED", name="Suspended", state_details=details)
    assert_nothing_is_left(site, run_id)
    run = ledger.runs.get(run_id)
    assert (run.state, run.attempt) == (RunState.WAITING, 2)
    assert run.suspended_at is not None

    def endless() -> bool:
        state = site.call("GET", f"flow_runs/{run_id}")["state"]
        return state["name"] == "Suspended" and state["state_details"]["pause_timeout"] is None

    wait_for(endless, lambda: str(site.call("GET", f"flow_runs/{run_id}")["state"]))
    site.call("POST", f"flow_runs/{run_id}/resume", {})
    view = site.until(run_id, "Completed", "Failed", "Cancelled")
    assert (view["state"], view["attempt"]) == ("Completed", 2), view
    assert "from step 7" in site.run("logs", run_id).stdout


def test_a_flow_process_that_begins_takes_no_suspension_back(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    """Its user suspends a run whose flow has just died: the next one writes Running over that."""
    site = process_site
    run_id = resuming(site, tmp_path, "suspended-at-a-start", retries=0)

    def begun() -> bool:
        states = site.call("GET", f"flow_run_states/?flow_run_id={run_id}")
        types = [each["type"] for each in states]
        return "RUNNING" in types[types.index("PAUSED") :]

    with nobody_leads(site):  # nor hears of it
        site.kill(site.flow_pid(run_id))
        set_state(site, run_id, type="PAUSED", name="Suspended")
        wait_for(begun, lambda: f"{site.show(run_id)} {site.worker_log()}")
    site.until(run_id, "Suspended")
    assert_nothing_is_left(site, run_id)
    run = ledger.runs.get(run_id)
    assert (run.state, run.attempt) == (RunState.WAITING, 2)
    site.json("cancel", run_id)
    site.until(run_id, "Cancelled")


def test_cancel_by_name_takes_the_newest_that_has_not_ended(
    process_site: LiveSite, tmp_path: Path
) -> None:
    site = process_site
    older = started(site, tmp_path, "same-name", steps=2400)
    newer = site.submit(tmp_path, name="same-name", command=["true"])
    site.until(newer, "Completed")
    assert site.json("cancel", "same-name")["run_id"] == older
    site.until(older, "Cancelled")
    said = site.run("cancel", "same-name")
    assert said.returncode == 0
    assert "nothing was cancelled" in said.stdout, said
    assert json.loads(site.run("cancel", newer, "--json").stdout)["state"] == "Completed"


def test_a_flow_parameter_that_there_is_none_of_is_refused_at_once(process_site: LiveSite) -> None:
    """Its processes would end before they begin, again and again."""
    run_id = process_site.start("train/default", job=sleeper(1), nonsense=1)
    state = process_site.ended(run_id)
    assert (state["type"], state["name"]) == ("FAILED", "Failed"), state
    assert "flow train has no parameter" in state["message"]
    assert_nothing_is_left(process_site, run_id)


def test_a_run_whose_deployment_was_deleted_is_taken_up_again_and_ends(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """Prefect refuses every claim of it for good, and its container would never be settled."""
    site = process_site
    default = site.call("GET", "deployments/name/train/default")
    body = {key: default[key] for key in ("flow_id", "work_pool_name", "entrypoint", "path")}
    gone = site.call("POST", "deployments/", {**body, "name": "gone"})["id"]
    asked = {"state": {"type": "SCHEDULED"}, "parameters": {"job": sleeper(40)}}
    run_id = site.call("POST", f"deployments/{gone}/create_flow_run", asked)["id"]
    site.until_training(run_id)
    site.call("DELETE", f"deployments/{gone}")
    site.kill(site.flow_pid(run_id))
    view = site.until(run_id, "Completed", "Failed", "Cancelled")
    assert (view["state"], view["attempt"]) == ("Completed", 1)
    leases = "SELECT count(*) FROM lease WHERE run_id = :run_id"
    assert site.count(leases, run_id=run_id) == 1
