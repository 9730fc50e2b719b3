"""Telemetry in the ledger stays within its retention."""

from datetime import UTC, datetime, timedelta

from headway.ledger import Ledger
from headway.model.telemetry import TelemetryPoint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_points_come_back_in_order_at_the_databases_time(ledger: Ledger) -> None:
    points = [
        TelemetryPoint(NOON + timedelta(seconds=n), "GPU-0", used_bytes=n, run_bytes={"r": n})
        for n in range(3)
    ]
    ledger.telemetry.append("node-a", [*points, TelemetryPoint(NOON, busy_frac=0.5)])
    got = ledger.telemetry.series("node-a", gpu="GPU-0")
    assert [point.run_bytes for point in got] == [{"r": 0}, {"r": 1}, {"r": 2}]
    assert abs((ledger.now() - got[-1].at).total_seconds()) < 5
    assert got[2].at - got[0].at == timedelta(seconds=2)
    assert [p.busy_frac for p in ledger.telemetry.series("node-a")] == [0.5]
    assert ledger.telemetry.series("node-b") == []


def test_what_is_older_than_its_retention_goes(ledger: Ledger) -> None:
    ages = (timedelta(0), timedelta(minutes=59), timedelta(minutes=61), timedelta(days=8))
    ledger.telemetry.append(
        "node-a",
        [TelemetryPoint(NOON - age, period_s=period) for age in ages for period in (1, 60)],
    )
    month_s = 30 * 86_400.0
    assert len(ledger.telemetry.series("node-a", last_s=month_s)) == 2
    assert len(ledger.telemetry.series("node-a", period_s=60, last_s=month_s)) == 3
