"""Short jobs submitted at once: all of them end well, and nobody holds places in a queue."""

import time
from contextlib import closing

import pytest

from headway.ledger import Ledger
from headway.model.run import RunState
from headway.policy.claims import claim_room
from tests.support.promises import Watched
from tests.support.site import PATIENCE_S, LiveSite

pytestmark = pytest.mark.prefect

JOBS = 15


def test_short_jobs_at_once_all_end_well(process_site: LiveSite) -> None:
    watched = Watched(process_site)
    runs = [watched.submit(f"short-{number}", 0.0) for number in range(JOBS)]
    deadline = time.monotonic() + 2 * PATIENCE_S
    with closing(watched.ledger()) as ledger:
        while True:
            assert_within_limits(ledger, watched.settings.node)
            records = ledger.runs.of(runs).values()
            if sum(record.state is RunState.ENDED for record in records) == JOBS:
                break
            said = [f"{each.name} {each.state} {each.reason}" for each in records]
            assert time.monotonic() < deadline, f"{said}\n{process_site.worker_log()}"
            time.sleep(0.2)
    assert watched.broken(runs) == []


def assert_within_limits(ledger: Ledger, node: str) -> None:
    """No more is granted than the node has, and no more claimed than it can begin."""
    record = ledger.nodes.get(node)
    assert record is not None
    has, keeps = record.node.capacity, record.node.reserve
    held = ledger.leases.live(node)
    assert sum(each.cpus for each in held) <= has.cpus - keeps.cpus + 1e-9
    memory = sum(each.host_memory_bytes for each in held)
    assert memory <= has.host_memory_bytes - keeps.host_memory_bytes
    assert len(ledger.leases.unstarted(node)) <= claim_room(has.cpus, 0)
