"""A live site with a store on S3: what a run left is read there after its node has gone."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.ledger import Ledger
from tests.support.site import LiveSite, wait_for

pytestmark = [pytest.mark.prefect, pytest.mark.postgresql]
WRITES = (
    "import os, pathlib; print('epoch 1 of 1');"
    " (pathlib.Path(os.environ['HEADWAY_OUTPUTS']) / 'a model.pt').write_bytes(bytes(5_000_000))"
)


@pytest.fixture
def ledger(three_nodes: dict[str, LiveSite]) -> Iterator[Ledger]:
    with closing(Ledger.open(three_nodes["head"].env["HEADWAY_LEDGER_URL"])) as found:
        yield found


def test_logs_and_outputs_come_from_the_store_after_their_node_has_gone(
    three_nodes: dict[str, LiveSite],
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head, left = three_nodes["head"], three_nodes["left"]
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({"name": "far", "image": "none", "command": ["python3", "-c", WRITES]})
    )
    run_id = head.json("submit", str(job), "--node", "left")["run_id"]
    assert head.until(run_id, "Completed", "Failed")["node"] == "left"
    wait_for(
        lambda: [part.key for part in ledger.stored.of_run(run_id)],
        lambda: (left.home / "state/worker.log").read_text()[-3000:],
    )
    assert left.run("down", "--stop", "--yes").returncode == 0
    assert read(head, run_id, tmp_path / "stopped") == ("epoch 1 of 1\n", bytes(5_000_000))
    monkeypatch.setattr("headway.scheduler.snapshot.LOST_AFTER_S", -1.0)  # it reported just now
    removed = head.run("node", "remove", "left", "--powered-off")
    assert removed.returncode == 0, removed.stderr
    (left.home / "runs" / run_id).rename(tmp_path / "gone")
    assert read(head, run_id, tmp_path / "removed") == ("epoch 1 of 1\n", bytes(5_000_000))
    pruned = head.run("prune", "--store", "--older-than", "0s", "--yes")
    assert run_id[:8] in pruned.stdout, pruned.stderr
    gone = head.run("outputs", run_id)
    assert (gone.returncode, "removed from the site" in gone.stderr) == (3, True), gone.stderr


def read(site: LiveSite, run_id: str, folder: Path) -> tuple[str, bytes]:
    """What a user gets: the log, and the one output."""
    fetched = site.run("outputs", run_id, str(folder))
    assert fetched.returncode == 0, fetched.stderr
    return site.run("logs", run_id).stdout, (folder / "a model.pt").read_bytes()
