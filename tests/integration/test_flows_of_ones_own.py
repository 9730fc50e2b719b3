"""Flows that wait for runs by the task `train`, served on a live site as docs/python.md says."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.site import ROOT, LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect

FLOW = """
from prefect import flow
from headway.tasks import train
from samples.pipeline.pipeline import pipeline

@flow(retries=1)
def waits(job: dict) -> None:
    train(job)

@flow
def waits_for_two(job: dict) -> None:
    train.submit(job)  # in a thread, which no signal reaches
    train(job)

if __name__ == "__main__":
    from prefect import serve
    mine = [each.to_deployment("own") for each in (waits, waits_for_two)]
    serve(pipeline.to_deployment("pipeline"), *mine)
"""


@pytest.fixture(scope="module")
def served(process_site: LiveSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """The site, with the sample and two small flows served by processes of their own."""
    folder = tmp_path_factory.mktemp("flows")
    (folder / "own.py").write_text(FLOW)
    env = process_site.env | process_site.at_the_gateway() | {
        "PREFECT_API_URL": f"{process_site.url}/api",
        "PREFECT_API_AUTH_STRING": process_site.auth(),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    with (folder / "log").open("w") as log:
        serving = subprocess.Popen(
            [sys.executable, "own.py"], cwd=folder, env=env, stdout=log, stderr=log
        )
        try:
            for name in ("pipeline/pipeline", "waits/own", "waits-for-two/own"):
                wait_for(lambda n=name: deployed(process_site, n), (folder / "log").read_text)
            yield process_site
        finally:
            serving.terminate()
            serving.wait(60)


def deployed(site: LiveSite, name: str) -> bool:
    flow, _, deployment = name.partition("/")
    asked = {"deployments": {"name": {"any_": [deployment]}}, "flows": {"name": {"any_": [flow]}}}
    return bool(site.call("POST", "deployments/filter", asked))


def task_runs(site: LiveSite, flow_run: str) -> dict[str, dict[str, Any]]:
    asked = {"flow_runs": {"id": {"any_": [flow_run]}}}
    return {each["name"]: each for each in site.call("POST", "task_runs/filter", asked)}


def submitted(site: LiveSite, name: str) -> list[dict[str, Any]]:
    return [each for each in site.json("runs") if each["name"] == name]


def test_the_sample_is_one_graph(served: LiveSite) -> None:
    flow_run = served.start("pipeline/pipeline", steps=10)
    assert served.ended(flow_run)["type"] == "COMPLETED", served.logged(flow_run)
    wait_for(  # its process sends what it has logged until it ends
        lambda: any("best learning rate 0.4, loss " in line for line in served.logged(flow_run)),
        lambda: str(served.logged(flow_run)),
    )
    found = wait_for(  # Prefect writes task runs behind the flow's back
        lambda: all_ if len(all_ := task_runs(served, flow_run)) == 6 else None,
        lambda: str(task_runs(served, flow_run)),
    )
    names = {run["id"]: name for name, run in found.items()}
    picked = next(name for name in found if name.startswith("pick"))
    before = {
        names[run["id"]].partition("-")[0]: {
            names[each["id"]] for given in run["task_inputs"].values() for each in given
            if each["input_type"] == "task_run"
        }
        for run in found.values()
    }  # fmt: skip
    variants = {"train-0.01", "train-0.1", "train-0.4"}
    assert before == {
        "stage": set(), "train": {"stage"}, "pick": variants, "evaluate": {picked},
    }  # fmt: skip


def test_a_retry_hands_nothing_in_twice(served: LiveSite) -> None:
    """The flow's own retry finds the run that failed, and tries it once more."""
    failing = "import os; raise SystemExit(3 * (os.environ['HEADWAY_ATTEMPT'] == '1'))"
    job = sleeper(name="twice", command=["python", "-c", failing])
    flow_run = served.start("waits/own", job=job)
    assert served.ended(flow_run)["type"] == "COMPLETED", served.logged(flow_run)
    (run,) = submitted(served, "twice")
    assert served.show(run["run_id"])["attempt"] == 2
    there, back = served.artifacts(flow_run), served.artifacts(run["run_id"])
    gateway = served.at_the_gateway()["HEADWAY_URL"]
    assert f"({gateway}/headway#/runs/{run['run_id']})" in there["headway-run"]
    assert f"(/runs/flow-run/{run['run_id']})" in there["headway-run"]
    assert f"(/runs/flow-run/{flow_run})" in back["handed-in-by"]


def test_a_flow_that_is_cancelled_cancels_what_it_waits_for(served: LiveSite) -> None:
    flow_run = served.start("waits-for-two/own", job=sleeper(2000, name="equal"))
    wait_for(lambda: len(submitted(served, "equal")) == 2, lambda: str(served.logged(flow_run)))
    runs = [each["run_id"] for each in submitted(served, "equal")]
    for each in runs:
        served.until_training(each)
    served.call("POST", f"flow_runs/{flow_run}/set_state", {"state": {"type": "CANCELLING"}})
    for each in runs:
        assert served.until(each, "Cancelled", "Completed")["state"] == "Cancelled"
