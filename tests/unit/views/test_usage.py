"""Usage: what was held in a span of time, and what of it was not used."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.model.lease import GpuGrant, Sharing
from headway.model.node import Capacity, Gpu, Node
from headway.model.run import Measurement
from headway.model.usage import Holding
from headway.units import GIB
from headway.views.usage import Usage, usage_of

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NODES = {
    "n": Node(
        "n", "gpu", Capacity(8.0, 64 * GIB, (Gpu("GPU-0", 0, "A100", 40 * GIB),)),
        price_per_hour=4.0, gpu_price_per_hour=2.0,
    )
}  # fmt: skip
WHOLE = (GpuGrant("GPU-0", 40 * GIB, Sharing.WHOLE),)
RUN = Holding(
    "r1", "vision", "ada", "n", BEGIN + HOUR, BEGIN + 11 * HOUR, 2.0, 16 * GIB, WHOLE,
    program=(BEGIN + 2 * HOUR, BEGIN + 10 * HOUR),
    measured=Measurement(
        runtime_s=8 * 3600.0, host_peak_bytes=4 * GIB, gpu_utilisation_frac=0.75, cpu_s=8 * 3600.0
    ),
)  # fmt: skip


def of(*holdings: Holding, since: datetime = BEGIN, until: datetime = END) -> list[Usage]:
    return usage_of(holdings, NODES, since, until)


def test_what_a_run_held_and_did_not_use() -> None:
    (row,) = of(RUN)
    assert (row.team, row.user, row.runs) == ("vision", "ada", {"r1"})
    assert row.gpu_hours == pytest.approx(10.0)
    assert row.idle_gpu_hours == pytest.approx(2.0 + 8.0 * 0.25)
    assert row.unmeasured_gpu_hours == 0.0
    assert row.gib_hours == pytest.approx(160.0)
    assert row.unused_gib_hours == pytest.approx(120.0)
    assert row.cpu_hours == pytest.approx(20.0)
    assert row.unused_cpu_hours == pytest.approx(10.0)
    assert row.cost == pytest.approx(20.0)
    assert row.idle_cost == pytest.approx(2 * row.idle_gpu_hours)


def test_only_what_lies_in_the_month_counts() -> None:
    before = replace(RUN, began_at=BEGIN - 5 * HOUR, ended_at=BEGIN - HOUR)
    over = replace(RUN, began_at=BEGIN - 9 * HOUR, program=None, ended_at=BEGIN + HOUR)
    (row,) = of(before, over)
    assert row.gpu_hours == row.idle_gpu_hours == pytest.approx(1.0)
    assert of(before) == []


def test_what_goes_on_counts_until_now_and_is_not_called_idle() -> None:
    now = BEGIN + 4 * HOUR
    going = replace(RUN, ended_at=None, program=(BEGIN + 2 * HOUR, None), measured=None)
    (row,) = of(going, until=now)
    assert row.gpu_hours == pytest.approx(3.0)
    assert row.idle_gpu_hours == pytest.approx(1.0)  # before its program began
    assert row.unmeasured_gpu_hours == pytest.approx(2.0)
    assert row.unused_gib_hours == 0.0


def test_a_shared_gpu_counts_by_its_memory() -> None:
    half = (GpuGrant("GPU-0", 20 * GIB),)
    (row,) = of(replace(RUN, gpus=half))
    assert row.gpu_hours == pytest.approx(5.0)
    assert row.cost == pytest.approx(10.0)
    (unknown,) = of(replace(RUN, gpus=half, node="gone"))
    assert (unknown.gpu_hours, unknown.cost) == (pytest.approx(10.0), 0.0)
    assert (row.idle_cost, unknown.idle_cost) == (pytest.approx(4.0), 0.0)


def test_each_user_of_each_team_has_a_row() -> None:
    eve = replace(RUN, run_id="r2", user="eve")
    other = replace(RUN, run_id="r3", team="speech", gpus=())
    rows = of(RUN, eve, other, replace(RUN, run_id="r1"))
    assert [(row.team, row.user, len(row.runs)) for row in rows] == [
        ("speech", "ada", 1), ("vision", "ada", 1), ("vision", "eve", 1)
    ]  # fmt: skip
    assert rows[0].cost == pytest.approx(10 * 4.0 * 2 / 8)  # its share of the node's processors
    assert rows[1].gpu_hours == pytest.approx(20.0)  # two attempts of one run
