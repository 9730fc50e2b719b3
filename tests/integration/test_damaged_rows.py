"""A row of the ledger that can no longer be read stops no pass, no janitor and no other run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.lease import Demand
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState
from headway.node.janitor import Janitor
from headway.scheduler.reconciler import PrefectRun, Reconciler
from headway.settings import Settings
from headway.site import Site
from headway.this_node import heartbeat, join_site, read_node
from headway.units import MIB
from tests.support.leading import grant_in_term, leading

BAD, GOOD = (f"00000000-0000-4000-8000-00000000000{at}" for at in (1, 2))
DEMAND = Demand(host_memory_bytes=64 * MIB, cpus=0.1)
NO_JOBS = [
    {"name": "of another version"},
    {"name": "x", "resources": "many"},
    {"image": 3, "training": [1], "max_runtime": "soon", "resources": {"gpus": "two"}},
    [],
    "",
]


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    settings = Settings(home=tmp_path, runtime="process", node="here", ledger_url=ledger_url)
    site = Site(settings, SystemClock())
    join_site(site)
    heartbeat(site, read_node(site))
    job = TrainingJob(
        name="job", image="i:1", command=["true"], resources={"host_memory": "64MiB", "cpus": 0.1}
    )
    for run_id in (BAD, GOOD):
        site.ledger.runs.enqueue(
            run_id, job.document(), name="job", owner="me", team="default", pool="gpu", priority=0,
            submitted_at=site.ledger.now(),
        )  # fmt: skip
    yield site
    site.ledger.close()


def damage(site: Site, column: str, content: str, table: str = "run") -> None:
    """Write *content* as it is, as no code of headway would."""
    where = f" WHERE run_id = '{BAD}'" if table == "run" else ""
    with site.ledger._database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {column} = :content{where}"),
                           {"content": content})  # fmt: skip


CUT = '{"x": 1}'
"""Another shape: half of a document PostgreSQL itself refuses."""


@pytest.mark.parametrize("job", NO_JOBS)
def test_a_waiting_run_whose_job_is_none_any_more_ends_in_words_and_others_start(
    site: Site, job: Any
) -> None:
    damage(site, "job", json.dumps(job))
    line = leading(site)
    assert line.run_pass().granted == (GOOD,)
    ended = site.ledger.runs.get(BAD)
    assert ended.state is RunState.ENDED
    assert ended.exit is not None
    assert ended.exit.kind is ExitKind.INFRASTRUCTURE
    assert "cannot be read from the ledger" in ended.exit.message
    assert "submit it again" in ended.exit.message
    assert line.run_pass().granted == ()


@pytest.mark.parametrize("column", ["job", "prediction", "demand", "demand_override"])
def test_a_cut_column_of_one_run_stops_no_pass(site: Site, column: str) -> None:
    damage(site, column, CUT)
    assert GOOD in leading(site).run_pass().granted


@pytest.mark.parametrize(
    "column", ["job", "prediction", "demand", "demand_override", "measurement"]
)
def test_a_cut_column_of_a_run_that_runs_stops_no_pass_and_no_janitor(
    site: Site, column: str
) -> None:
    grant_in_term(site.ledger, BAD, "here", DEMAND)
    damage(site, column, CUT)
    assert GOOD in leading(site).run_pass().granted
    janitor = Janitor(site)
    # Its flow is dead and the user has cancelled it: all that it holds comes back.
    seen = {BAD: PrefectRun(PrefectView.CANCELLING), GOOD: PrefectRun(PrefectView.SCHEDULED)}
    reconciler = Reconciler(site)
    reconciler.round(reconciler.unsettled(), seen)
    janitor.round(janitor.unsettled(), frozenset({GOOD}))
    assert site.ledger.leases.of_run(BAD) is None
    assert site.ledger.runs.get(BAD).state is RunState.ENDED


@pytest.mark.parametrize(("column", "table"), [("reading", "node"), ("gpus", "node")])
def test_a_damaged_row_of_a_node_stops_no_pass(site: Site, column: str, table: str) -> None:
    damage(site, column, '{"x": 1}', table)
    assert GOOD in leading(site).run_pass().granted
    assert [each.node.name for each in site.ledger.nodes.all()] == ["here"]
    join_site(site)  # the node's worker writes it anew
    assert heartbeat(site, read_node(site))
    (record,) = site.ledger.nodes.all()
    assert record.reading is not None


def test_a_setting_that_cannot_be_read_is_one_that_was_never_made(site: Site) -> None:
    site.ledger.settings.put("line", {"teams": {}})
    damage(site, "document", '"x"', "setting")
    assert site.ledger.settings.of(("line",)) == {}
    assert site.ledger.settings.put("line", {"teams": {}})  # the block in Prefect is its origin
    assert site.ledger.settings.get("line") == {"teams": {}}
