"""Ends of runs are written to a real MLflow server, and one that is away delays nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.site import BIN, ROOT, LiveSite, free_port, wait_for

pytestmark = pytest.mark.prefect

SECRET = "of-the-team-alone"
_LOGS = """
import mlflow, sys
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("of the program")
with mlflow.start_run(run_name="its own"):
    mlflow.log_metric("loss", 0.5)
"""


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [BIN / "mlflow", "server", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder}/runs.db",
             "--artifacts-destination", folder],
            stdout=log, stderr=log, cwd=folder, start_new_session=True,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # seven processes
        )  # fmt: skip

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            return False

    wait_for(answers, (folder / "log").read_text)
    yield url
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(60)


@pytest.fixture
def site(process_site: LiveSite) -> Iterator[LiveSite]:
    yield process_site
    process_site.set_knobs(teams={})


def _name(site: LiveSite, name: str, url: str) -> None:
    """Have the team's tracker be that of the block *name*, which leads to *url*."""
    env = {"PREFECT_API_URL": f"{site.url}/api", "PREFECT_API_AUTH_STRING": site.auth()}
    made = [BIN / "python", ROOT / "samples/tools/tracked.py", name, url]
    env |= {"MLFLOW_TRACKING_TOKEN": SECRET}
    subprocess.run(made, env=site.env | env, cwd=ROOT, check=True, timeout=120)
    site.set_knobs(teams={"default": {"tracker": f"headway-mlflow/{name}"}})


def _tracked(url: str, run_id: str) -> list[dict[str, Any]]:
    """MLflow's runs of *run_id* as its own interface has them: info, tags and metrics."""
    api = f"{url}/api/2.0/mlflow"
    found = httpx.post(f"{api}/experiments/search", json={"max_results": 100}).json()
    names = {each["experiment_id"]: each["name"] for each in found["experiments"]}
    asked = {"experiment_ids": [*names], "filter": f"tags.`headway.run_id` = '{run_id}'"}
    runs = httpx.post(f"{api}/runs/search", json=asked).json().get("runs", [])
    return [
        {
            "experiment": names[run["info"]["experiment_id"]],
            **run["info"],
            "tags": {each["key"]: each["value"] for each in run["data"]["tags"]},
            "metrics": {each["key"]: each["value"] for each in run["data"].get("metrics", [])},
        }
        for run in runs
    ]


def test_an_end_is_written_in_the_experiment_of_its_recipe(
    site: LiveSite, mlflow: str, tmp_path: Path
) -> None:
    _name(site, "team", mlflow)
    ran = site.submit(tmp_path, name="tracked", command=["sh", "-c", "env; exit 3"])
    site.until(ran, "Failed")
    # The end of a run is what is written of it last, behind its tags.
    wait_for(lambda: "FAILED" in str(_tracked(mlflow, ran)), site.worker_log)
    (run,) = _tracked(mlflow, ran)
    shown = site.show(ran)
    assert (run["experiment"], run["run_name"], run["status"]) == (
        "default/tracked", "tracked", "FAILED",
    )  # fmt: skip
    assert run["tags"].items() >= {
        "headway.node": "test-node", "headway.outcome": "failed", "headway.team": "default",
        "headway.predicted_by": shown["predicted"]["basis"],
    }.items()  # fmt: skip
    told = {name: run["metrics"].get(f"headway.{name}") for name in ("runtime_s", "cost")}
    assert told == {name: pytest.approx(shown["measured"][name]) for name in told}
    assert run["end_time"] >= run["start_time"]
    log = site.run("logs", ran).stdout
    assert json.dumps({"headway.run_id": ran}) in log
    assert SECRET not in log
    left = [each for each in site.home.rglob("*") if each.is_file() and "runs" in each.parts]
    assert left
    assert not [each for each in left if SECRET.encode() in each.read_bytes()]


def test_what_the_program_logs_itself_gets_the_tags(
    site: LiveSite, mlflow: str, tmp_path: Path
) -> None:
    _name(site, "team", mlflow)
    own = site.submit(tmp_path, name="logs", command=[sys.executable, "-c", _LOGS, mlflow])
    site.until(own, "Completed")
    wait_for(lambda: str(_tracked(mlflow, own)).count("headway.outcome") == 2, site.worker_log)
    found = {each["experiment"]: each for each in _tracked(mlflow, own)}
    assert found.keys() == {"of the program", "default/logs"}
    assert found["default/logs"]["status"] == "FINISHED"
    run = found["of the program"]
    assert run["run_name"] == "its own"
    assert run["metrics"]["loss"] == 0.5
    assert run["metrics"]["headway.runtime_s"] > 0
    assert run["tags"]["headway.outcome"] == "ok"


def test_one_that_is_away_delays_nothing_and_gets_all_of_it_later(
    site: LiveSite, mlflow: str, tmp_path: Path
) -> None:
    _name(site, "away", "http://127.0.0.1:9")
    ran = site.submit(tmp_path, name="later")
    site.until(ran, "Completed")
    wait_for(lambda: "Not told" in site.run("show", ran).stdout, site.worker_log)
    assert "ConnectError" in site.run("show", ran).stdout
    found = site.run("doctor").stdout
    assert "headway-mlflow/away" in found, found
    _name(site, "away", mlflow)
    wait_for(lambda: "headway.outcome" in str(_tracked(mlflow, ran)), site.worker_log)
    wait_for(lambda: "Not told" not in site.run("show", ran).stdout, site.worker_log)
