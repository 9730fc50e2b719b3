"""What only reads the ledger waits for no writer, and cannot write."""

from collections.abc import Callable

import pytest

from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.tables import SettingRow
from tests.support.lived_in import ENDED, NODE, RUNNING, populate


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    populate(ledger)
    return ledger


READS: dict[str, Callable[[Ledger], object]] = {
    "now": lambda ledger: ledger.now(),
    "a run": lambda ledger: ledger.runs.get(RUNNING),
    "a run by its name": lambda ledger: ledger.runs.find("brave-w1"),
    "runs of a node": lambda ledger: ledger.runs.on_node(NODE),
    "attempts": lambda ledger: ledger.attempts.of_run(ENDED),
    "steps": lambda ledger: ledger.steps.of_run(ENDED),
    "leases": lambda ledger: ledger.leases.live(NODE),
    "leases of a run": lambda ledger: ledger.leases.every_of_run(ENDED),
    "nodes": lambda ledger: ledger.nodes.all(),
    "a node": lambda ledger: ledger.nodes.get(NODE),
    "the queue": lambda ledger: ledger.pools.snapshot("gpu", {}),
    "progress": lambda ledger: ledger.progress.series(RUNNING, 1),
    "traces": lambda ledger: ledger.traces.all(),
    "staged": lambda ledger: ledger.staged.list(NODE),
    "settings": lambda ledger: ledger.settings.get("policy"),
    "telemetry": lambda ledger: ledger.telemetry.series(NODE, gpu="", period_s=1, last_s=60.0),
    "warnings": lambda ledger: ledger.warnings.going_on(),
    "the schema": lambda ledger: ledger._database.schema_version(),
}


def test_reads_go_on_while_somebody_writes(ledger: Ledger) -> None:
    with ledger._database.transaction() as session:
        session.add(SettingRow(name="held", document={}, updated_at=ledger.now()))
        session.flush()
        for what, read in READS.items():
            assert read(ledger) is not NotImplemented, what
        assert ledger.settings.get("held") is None


def test_what_only_reads_cannot_write(ledger: Ledger) -> None:
    moment = ledger.now()
    with (
        pytest.raises(LedgerError, match="INSERT where the ledger is only read"),
        ledger._database.reading() as session,
    ):
        session.add(SettingRow(name="sneaked", document={}, updated_at=moment))
    assert ledger.settings.get("sneaked") is None
    for name in ("a", "b", "c"):  # the connection that only read can be lent to who writes
        assert ledger.settings.put(name, {})
