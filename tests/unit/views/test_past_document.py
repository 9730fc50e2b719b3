"""The site's past, replayed from a ledger that a replayed stream filled; and other rules tried."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlmodel import Session

from headway.errors import InvalidInput
from headway.ledger import Ledger
from headway.ledger.tables import RunRow
from headway.model.lease import Demand, Sharing
from headway.model.node import Capacity, Gpu, Node
from headway.model.run import ExitKind, Prediction, RunState
from headway.policy.settings import PolicySettings, TeamSettings
from headway.replay.cluster import Machines
from headway.replay.simulate import PolicyName, Result, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob
from headway.units import DAY_S, GIB, HOUR_S
from headway.views.charts import draw_past
from headway.views.past_document import past_view
from tests.support.postgresql import new_ledger

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NODES = tuple(
    Node(
        name,
        "gpu",
        Capacity(
            16.0, 64 * GIB, tuple(Gpu(f"{name}{at}", at, "A100", 24 * GIB) for at in range(2))
        ),
        gpu_price_per_hour=0.5,
    )
    for name in ("a", "b")
)


def stream() -> list[TraceJob]:
    """Jobs of two teams that wait for one another."""
    return [
        TraceJob(
            f"{at:036d}", "red" if at % 3 else "blue", 600.0 * at,
            HOUR_S * (0.2 + at * 7 % 5), 1 + (at % 5 == 0), 20 * GIB, 0.9,
            predicted_s=(HOUR_S * (0.2 + at * 7 % 5),) * 2,
            recipe=f"i:{at}", host_memory_bytes=20 * GIB, cpus=4.0, whole=True,
        )
        for at in range(60)
    ]  # fmt: skip


def fill(ledger: Ledger, result: Result) -> None:
    def at(seconds: float) -> datetime:
        return BEGAN + timedelta(seconds=seconds)

    with Session(ledger._database.engine) as session:
        for job in result.jobs:
            row = job.trace
            demand = Demand(
                row.host_memory_bytes, row.cpus, row.gpus, row.gpu_memory_bytes, Sharing.WHOLE, 0.9
            )
            session.add(
                RunRow(
                    run_id=row.job_id, name=row.job_id[-4:], owner="ada", team=row.team, pool="gpu",
                    job={"image": "i", "name": row.job_id}, state=RunState.ENDED, node="a",
                    submitted_at=at(row.submit_s), claimed_at=at(job.start_s),
                    started_at=at(job.start_s), ended_at=at(job.end_s), exit_kind=ExitKind.OK,
                    demand=demand, prediction=Prediction(row.duration_s, 1.0, row.duration_s),
                )
            )  # fmt: skip
        session.commit()


@pytest.fixture
def site() -> Iterator[Any]:
    ledger = Ledger.open(new_ledger())
    for node in NODES:
        ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    settings = PolicySettings(teams={"red": TeamSettings(weight=3.0)})
    result = simulate(
        stream(), Machines.of(NODES), PolicyName.HEADWAY, GpuSharing.HEADWAY, Estimates.GIVEN,
        settings=settings,
    )  # fmt: skip
    fill(ledger, result)
    end_s = max(job.end_s for job in result.jobs)
    stopped = SimpleNamespace(
        runs=ledger.runs, nodes=ledger.nodes, now=lambda: BEGAN + timedelta(seconds=end_s)
    )
    yield SimpleNamespace(
        ledger=stopped, settings=SimpleNamespace(pool="gpu"), policy_settings=settings, end_s=end_s
    )
    ledger.close()


def test_what_happened_is_replayed_as_it_happened_and_changes_are_ranked(site: Any) -> None:
    replayed: list[str] = []
    found = past_view(site, site.end_s, report=replayed.append)
    assert (found["runs"], found["left_out"]) == (60, 0)
    assert found["near_frac"] > 0.95
    assert found["replayed"]["mean_wait_s"] == pytest.approx(
        found["happened"]["mean_wait_s"], rel=0.02
    )
    assert replayed[0] == "as it is"
    options = {one["name"]: one for one in found["options"]}
    assert options.keys() == set(replayed[1:])
    more = options["2 more GPUs on a"]
    assert more["saved_h"] > 10
    assert more["cost"] == pytest.approx(2 * 0.5 * site.end_s / HOUR_S)
    assert more["saved_h_per_cost"] == pytest.approx(more["saved_h"] / more["cost"])
    assert more["max_wait_s"] < found["replayed"]["max_wait_s"]
    assert options["first come, first served"]["saved_h"] < 0
    blue = {
        name: next(t["mean_wait_s"] for t in options[name]["by_team"] if t["team"] == "blue")
        for name in ("all teams with one weight", "promises twice as far off (3)")
    }
    assert blue["all teams with one weight"] < blue["promises twice as far off (3)"]
    names = [one["name"] for one in found["options"]]
    assert names[-1] == min(options, key=lambda name: options[name]["saved_h"])
    free = [at for at, one in enumerate(found["options"]) if one["cost"] == 0 < one["saved_h"]]
    assert all(at < names.index("2 more GPUs on a") for at in free)
    assert draw_past(found["options"]).startswith(b"\x89PNG")


def test_a_part_of_the_past_begins_with_those_who_ran_and_waited_then(site: Any) -> None:
    found = past_view(site, site.end_s / 2, more_gpus=0, weights={"blue": TeamSettings(weight=9.0)})
    assert 20 < found["runs"] < 60
    names = {one["name"] for one in found["options"]}
    assert "weights blue=9" in names
    assert not any("more GPUs" in name for name in names)


def test_runs_that_no_node_could_hold_now_are_left_out_and_an_empty_past_is_said(site: Any) -> None:
    small = [
        replace(node, capacity=replace(node.capacity, host_memory_bytes=GIB)) for node in NODES
    ]
    nodes = SimpleNamespace(all=lambda: [SimpleNamespace(node=node) for node in small])
    without = SimpleNamespace(
        **vars(site) | {"ledger": SimpleNamespace(**vars(site.ledger) | {"nodes": nodes})}
    )
    with pytest.raises(InvalidInput, match="no run had its place"):
        past_view(without, DAY_S)
