"""Arrays and chains on a live site: each run comes in its turn, once, whoever is killed."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.ledger import Ledger
from headway.model.run import GRANTED
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect

PROGRAM = """\
import json, os, sys
given = json.load(open(os.environ["HEADWAY_ARRAY_FILE"]))
assert given["parameters"] == {"lr": float(sys.argv[1]), "seed": int(os.environ["SEED"])}, given
assert os.environ["HEADWAY_ARRAY_LR"] == sys.argv[1]
assert os.environ["HEADWAY_ARRAY_INDEX"] == str(given["index"])
loss = given["parameters"]["lr"] * given["parameters"]["seed"]
print(json.dumps({"headway": {"iteration": 1, "total": 1, "metrics": {"loss": loss}}}))
"""


@pytest.fixture
def ledger(process_site: LiveSite) -> Iterator[Ledger]:
    with closing(Ledger.open(process_site.ledger_url())) as opened:
        yield opened


def submitted(site: LiveSite, folder: Path, *words: str, **job: Any) -> str:
    path = folder / f"{job['name']}.json"
    path.write_text(json.dumps(sleeper(1) | job))
    array_id: str = site.json("submit", str(path), *words)["array_id"]
    return array_id


def over(site: LiveSite, array_id: str, *states: str) -> dict[str, Any]:
    def seen() -> dict[str, Any] | None:
        view: dict[str, Any] = site.json("show", array_id)
        return view if view["state"] in states else None

    return wait_for(
        seen, lambda: f"not {states}: {site.json('show', array_id)}\n{site.worker_log()}"
    )


def test_members_find_their_parameters_and_tell_their_results(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site = process_site
    command = ["python", "-c", PROGRAM, "{lr}", '{"kept": 1}']
    array_id = submitted(
        site, tmp_path, "--array", "lr=0.5,0.25", "seed=1..2", "--at-most", "1",
        name="sweep", command=command, env={"SEED": "{seed}"},
    )  # fmt: skip
    most = 0

    def ended() -> bool:
        nonlocal most
        members = ledger.arrays.members(array_id)
        most = max(most, sum(run.state in GRANTED for run in members))
        assert sum(run.state not in GRANTED and run.exit is None for run in members) <= 1
        return len(members) == 4 and all(run.exit for run in members)

    wait_for(ended, lambda: f"{site.json('show', array_id)}\n{site.worker_log()}")
    assert most == 1
    view = over(site, "sweep", "Completed", "Failed")
    assert (view["state"], view["ended_well"]) == ("Completed", 4), view
    table = csv.DictReader(io.StringIO(site.run("results", array_id, "--csv").stdout))
    found = {(row["lr"], row["seed"]): row["loss"] for row in table}
    assert found == {
        ("0.5", "1"): "0.5", ("0.5", "2"): "1.0", ("0.25", "1"): "0.25", ("0.25", "2"): "0.5",
    }  # fmt: skip
    lines = [each for each in site.json("runs") if each["name"].startswith("sweep")]
    assert [each.get("array_id") for each in lines] == [array_id]
    members = [each["name"] for each in site.json("runs", "--members")]
    assert {"sweep-1", "sweep-2", "sweep-3", "sweep-4"} <= set(members)


def test_no_member_is_lost_or_doubled_while_workers_are_killed(
    process_site: LiveSite, tmp_path: Path, ledger: Ledger
) -> None:
    site, size = process_site, 8
    words = ("--array", f"seed=1..{size}")
    array_id = submitted(site, tmp_path, *words, name="killed", command=["true"])
    for created in (1, 3, 5):
        wait_for(
            lambda created=created: ledger.arrays.get(array_id).created >= created,  # type: ignore[misc]
            lambda: f"{ledger.arrays.get(array_id)}\n{site.worker_log()}",
        )
        site.kill(site.worker_pid())
        assert site.run("up").returncode == 0
    view = over(site, array_id, "Completed", "Failed")
    assert (view["state"], view["ended_well"]) == ("Completed", size), view
    assert [row["index"] for row in view["members"]] == list(range(1, size + 1))
    asked = {"flow_runs": {"name": {"like_": "killed-"}}, "limit": 200}
    made = Counter(run["name"] for run in site.call("POST", "flow_runs/filter", asked))
    assert made == {f"killed-{index}": 1 for index in range(1, size + 1)}


def test_an_array_is_cancelled_and_goes_on(process_site: LiveSite, tmp_path: Path) -> None:
    site, marker = process_site, tmp_path / "go on"
    tmp_path.chmod(0o755)
    program = f"import os, time\nif not os.path.exists({str(marker)!r}): time.sleep(3600)"
    array_id = submitted(
        site, tmp_path, "--array", "seed=1..3", "--at-most", "1",
        name="stopped", command=["python", "-c", program],
    )  # fmt: skip
    wait_for(
        lambda: site.json("show", array_id)["running"] == 1,
        lambda: f"{site.json('show', array_id)}\n{site.worker_log()}",
    )
    wait_for(
        lambda: "its array runs 1 at a time, and 1 of it run" in site.run("queue").stdout,
        lambda: site.run("queue").stdout,
    )
    site.json("cancel", array_id)
    view = over(site, array_id, "Cancelled")
    assert (view["cancelled"], view["ended_well"]) == (3, 0)
    for row in view["members"]:
        site.until(row["run_id"], "Cancelled")  # Prefect was told, too
    marker.touch()

    def tried_again() -> bool:
        return site.json("retry", array_id)["not_yet"] == 0

    wait_for(tried_again, lambda: f"{site.json('show', array_id)}")
    assert over(site, array_id, "Completed")["ended_well"] == 3


def test_runs_follow_one_another(process_site: LiveSite, tmp_path: Path) -> None:
    site, marker = process_site, tmp_path / "go on"
    tmp_path.chmod(0o755)
    program = f"import os, time\nwhile not os.path.exists({str(marker)!r}): time.sleep(0.1)"
    first = site.submit(tmp_path, name="stage", command=["python", "-c", program])
    second = site.submit(tmp_path, name="train", command=["true"], after="stage")
    alarm = site.submit(
        tmp_path, name="alarm", command=["true"], after={"run": second, "when": "failed"}
    )
    said = f"waits for run stage ({first[:8]}) to end well"
    wait_for(lambda: said in site.run("queue").stdout, lambda: site.run("queue").stdout)
    assert said in site.run("why", second).stdout
    site.until(first, "Running")
    marker.touch()
    assert site.until(second, "Completed")["attempt"] == 1
    exit_ = site.until(alarm, "Cancelled")["exit"]
    assert exit_["message"].endswith("which ended as ok; nothing was started")
