"""What each team has used, put together from readings that overlap."""

from datetime import UTC, datetime, timedelta

import pytest

from headway.ledger.pools import TeamGpuUse
from headway.policy.settings import PolicySettings
from headway.scheduler.fair_share import TeamUsage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLOW = PolicySettings(fair_share_half_life_s=3e8)  # next to nothing decays here


def test_each_lease_counts_once_however_often_it_is_read() -> None:
    usage = TeamUsage()
    leases: list[TeamGpuUse] = []
    for minute in range(200):
        now = NOON + timedelta(seconds=30 * minute)
        leases.append(TeamGpuUse(minute, "team", 1.0, now - timedelta(seconds=10), now))
        since = usage.since(now, SLOW)
        usage.catch_up([use for use in leases if use.until_at >= since], now, SLOW)
    assert usage.used["team"] == pytest.approx(2000.0, rel=1e-3)
    assert len(usage.counted) < 10
