"""What somebody broke by hand on a live site is found, and not any more once it is mended."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from headway.ledger.database import open_engine
from tests.faults.test_kills import assert_nothing_is_left
from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.prefect

BEFORE = "CURRENT_TIMESTAMP - INTERVAL '1 hour'"
FORGED = (
    "INSERT INTO lease (run_id, gang_rank, attempt, node, term, token, host_memory_bytes, cpus,"
    " disk_bytes, granted_at, expires_at)"
    " SELECT :run, 0, 1, 'test-node', term, 'forged', 1048576, 0.1, 0,"
    f" {BEFORE}, {BEFORE} FROM leader"
)


def look(site: LiveSite) -> tuple[int, dict[str, Any]]:
    """`headway doctor --invariants`: its exit status and what it prints."""
    done = site.run("doctor", "--invariants", "--json")
    assert done.returncode in {0, 1}, done.stderr + done.stdout
    return done.returncode, json.loads(done.stdout)


def about(findings: list[dict[str, Any]], *words: str) -> set[str]:
    """The kinds of the findings that have any of *words*."""
    return {each["kind"] for each in findings if any(word in each["what"] for word in words)}


@pytest.fixture
def frozen(process_site: LiveSite) -> Iterator[LiveSite]:
    """The site with a worker that lives and does nothing: its janitor mends nothing by itself."""
    pids = process_site.pids()
    os.kill(pids["supervisor"], signal.SIGSTOP)  # it would start others in their places
    try:
        yield process_site
    finally:
        for name in ("worker", "scheduler", "supervisor"):
            with suppress(ProcessLookupError):
                os.kill(pids[name], signal.SIGCONT)


def execute(site: LiveSite, sql: str, **values: Any) -> None:
    engine = open_engine(site.ledger_url())
    with engine.begin() as connection:
        connection.execute(text(sql), values)
    engine.dispose()


def ended(site: LiveSite, tmp_path: Path, name: str) -> str:
    """A run that has ended well, of which nothing is left to be done."""
    run_id = site.submit(tmp_path, name=name, command=["true"])
    site.until(run_id, "Completed")
    assert_nothing_is_left(site, run_id)
    told = "SELECT count(*) FROM run WHERE run_id = :run AND told_end_at IS NOT NULL"
    wait_for(lambda: site.count(told, run=run_id), lambda: "its end was not told")
    return run_id


def test_what_was_broken_by_hand_is_found_until_it_is_mended(
    frozen: LiveSite, tmp_path: Path
) -> None:
    site = frozen
    first, second = (ended(site, tmp_path, name) for name in ("held", "contradicted"))
    _, before = look(site)
    assert about(before["broken"] + before["under_way"], first, second) == set()
    for name in ("worker", "scheduler"):
        os.kill(site.pids()[name], signal.SIGSTOP)
    execute(site, f"UPDATE run SET ended_at = {BEFORE} WHERE run_id = :run", run=first)
    execute(site, FORGED, run=first)
    body = {"state": {"type": "CRASHED"}, "force": True}
    site.call("POST", f"flow_runs/{second}/set_state", body)

    status, found = look(site)
    assert status == 1
    assert about(found["broken"], first) == {"lease"}
    # Written a moment ago: somebody may be at it.
    assert about(found["under_way"], second) == {"prefect"}

    for name in ("worker", "scheduler"):
        os.kill(site.pids()[name], signal.SIGCONT)
    with site.server() as server:
        wait_for(
            lambda: server.run(second).state_type == "COMPLETED",
            lambda: "the janitor did not mend the state",
        )
    status, found = look(site)
    assert about(found["broken"] + found["under_way"], first, second) == set()
    known = {each["subject"] for each in before["broken"]}
    assert [each for each in found["broken"] if each["subject"] not in known] == []
    assert (status, found["unknown"]) == (int(bool(found["broken"])), [])


def test_a_server_that_is_away_is_unknown_and_not_healthy(process_site: LiveSite) -> None:
    away = LiveSite(process_site.home, "process", 1024)
    done = away.run("doctor", "--invariants", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert any("Prefect" in each for each in found["unknown"]), found
