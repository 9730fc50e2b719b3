"""The site as data frames: what the caller may see, in columns and types that are documented."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import headway
from headway.client import Client, frames
from headway.credentials import Address
from headway.gateway.tokens import issue
from headway.model.node import Capacity, Gpu, Node
from headway.model.trace import Beside, Trace
from headway.units import GIB
from tests.support.api import MEMBER, serving, site_in
from tests.support.on_ledger import enqueue

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
PAGE = Path(__file__).parents[2] / "docs/python.md"
EVERY = {
    "traces": frames.TRACES,
    "runs": frames.RUNS,
    "curve": frames.CURVE,
    "usage": frames.USAGE,
    "queue": frames.QUEUE,
    "nodes": frames.NODES,
}


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A member of team vision, on a site with a node, a run that waits, and traces of two teams."""
    site = site_in(tmp_path_factory.mktemp("frames"))
    cards = (Gpu("GPU-0", 0, "NVIDIA V100", 16 * GIB),)
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB, cards))
    site.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    enqueue(site.ledger, "r1", JOB, name="happy-otter", owner="ada", team="vision")
    at = datetime(2026, 1, 2, tzinfo=UTC)
    site.ledger.traces.add(
        [
            Trace(
                "a",
                "v100",
                1,
                8,
                runtime_s=60.0,
                team="vision",
                owner="ada",
                started_at=at,
                beside=(Beside("secret-net", 8, "speech", 1.4),),
            ),
            Trace("b", "v100", 1, 8, runtime_s=60.0, team="speech"),
            Trace("c", "v100", 2, 8, iteration_s=0.5, source="gavel", metrics={"--depth": 3.0}),
        ]
    )
    token, _ = issue(
        site.ledger, user="ada", team="vision", scopes=MEMBER, lifetime_s=600.0, actor="tests"
    )
    with serving(site) as url, Client(Address(url, token)) as client:
        yield client
    site.ledger.close()


def test_each_frame_has_the_documented_columns_and_types(ada: Client) -> None:
    found = {
        "traces": headway.traces(ada),
        "runs": headway.runs(ada),
        "curve": headway.curve("r1", ada),
        "usage": headway.usage(client=ada),
        "queue": headway.queue(ada),
        "nodes": headway.nodes(ada),
    }
    for name, table in found.items():
        for column, kind in EVERY[name].items():
            wanted = "datetime64" if kind == frames.MOMENT else kind
            assert str(table[column].dtype).startswith(wanted), (name, column)
        empty = frames.frame([], EVERY[name])
        assert empty.dtypes.to_dict() == table[list(EVERY[name])].dtypes.to_dict(), name
    assert found["nodes"]["gpus"].tolist() == [1]
    assert found["queue"]["run_id"].tolist() == ["r1"]
    assert found["runs"]["owner"].tolist() == ["ada"]


def test_traces_are_those_of_the_team_and_what_was_imported(ada: Client) -> None:
    table = headway.traces(ada).set_index("network")
    assert table.index.tolist() == ["a", "c"]
    assert table.loc["c", "--depth"] == 3.0
    assert "secret-net" not in str(ada.traces())  # what other teams run beside it
    assert table.loc["a", "started_at"] == pd.Timestamp("2026-01-02", tz="UTC")


def test_what_was_said_is_judged_by_what_was_learnt_and_ended_well() -> None:
    said = {"predicted_s": 10.0, "predicted_low_s": 8.0, "predicted_high_s": 12.0}
    of_runs = {"predicted_basis": "3 run(s) of the same job"}
    rows: list[dict[str, Any]] = [
        {"run_id": "good", "state": "Completed", "runtime_s": 10.5, **said, **of_runs},
        {"run_id": "bad", "state": "Completed", "runtime_s": 40.0, **said, **of_runs},
        {"run_id": "prior", "state": "Completed", "runtime_s": 1.0, **said}
        | {"predicted_basis": "prior: nothing like it has run"},
        {"run_id": "cut", "state": "Cancelled", "runtime_s": 3.0, **said, **of_runs},
        {"run_id": "waits", "state": "Pending", **said, **of_runs},
    ]
    found = frames.judged(frames.frame(rows, frames.RUNS)).set_index("run_id")
    assert found.index.tolist() == ["good", "bad"]
    assert found["error_frac"].tolist() == pytest.approx([0.5 / 10.5, 0.75])
    assert found["within"].tolist() == [True, False]
    assert frames.judged(frames.frame([], frames.RUNS)).empty


@pytest.mark.parametrize("name", EVERY)
def test_each_column_is_on_the_page(name: str) -> None:
    text = PAGE.read_text()
    section = text[text.index("## Data frames") :]
    assert [c for c in EVERY[name] if f"`{c}`" not in section] == []
