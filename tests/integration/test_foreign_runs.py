"""Whoever may write to Prefect's API cannot choose what the worker executes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.node.flowlock import live_flow
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect

POOL = "work_pools/gpu"


@dataclass
class Attacker:
    """Writes to the API whatever it likes; what it gets executed leaves a file in `loot`."""

    site: LiveSite
    loot: Path
    code: Path
    deployments: list[str] = field(default_factory=list)

    def touch(self, name: str) -> str:
        return f"touch {self.loot / name}"

    def variables(self, of: str) -> dict[str, Any]:
        """Job variables, each of which would be enough."""
        return {
            "command": self.touch(f"command-{of}"),
            "working_dir": str(self.code),
            "env": {
                "PREFECT__FLOW_ENTRYPOINT": f"{self.code / 'evil.py'}:train",
                "PYTHONPATH": str(self.code),
            },
        }

    def deploy(self, flow: str, **more: Any) -> str:
        """A deployment of *flow* whose code and pull steps are the attacker's; its id."""
        pull = "prefect.deployments.steps.run_shell_script"
        body = {
            "name": f"evil-{len(self.deployments)}",
            "flow_id": self.site.call("POST", "flows/", {"name": flow})["id"],
            "work_pool_name": "gpu",
            "entrypoint": f"{self.code / 'evil.py'}:train",
            "path": str(self.code),
            "pull_steps": [{pull: {"script": self.touch("pulled")}}],
            "enforce_parameter_schema": False,
            **more,
        }
        deployment: str = self.site.call("POST", "deployments/", body)["id"]
        self.deployments.append(deployment)
        return deployment

    def start(self, deployment: str, **more: Any) -> str:
        body = {"state": {"type": "SCHEDULED"}, "enforce_parameter_schema": False, **more}
        run: str = self.site.call("POST", f"deployments/{deployment}/create_flow_run", body)["id"]
        return run

    def state(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.site.call("GET", f"flow_runs/{run_id}")["state"]
        return found

    def until(self, run_id: str, *types: str) -> dict[str, Any]:
        return wait_for(
            lambda: found if (found := self.state(run_id))["type"] in types else None,
            lambda: f"{run_id} is {self.state(run_id)}\n{self.site.worker_log()}",
        )

    def got(self) -> list[str]:
        return sorted(path.name for path in self.loot.iterdir())


@pytest.fixture
def attacker(process_site: LiveSite, tmp_path: Path) -> Iterator[Attacker]:
    loot, code = tmp_path / "loot", tmp_path / "code"
    for folder in (loot, code / "flows"):
        folder.mkdir(parents=True)
    evil = f"import pathlib\npathlib.Path({str(loot / 'imported')!r}).touch()\n"
    for name in ("evil.py", "sitecustomize.py", "flows/__init__.py", "flows/train.py"):
        (code / name).write_text(evil)
    attacker = Attacker(process_site, loot, code)
    yield attacker
    for deployment in attacker.deployments:
        process_site.call("DELETE", f"deployments/{deployment}")


def test_a_run_cannot_say_how_it_is_started(attacker: Attacker, process_site: LiveSite) -> None:
    honest = process_site.call("GET", "deployments/name/train/default")["id"]
    parameters = {"job": sleeper(2)}
    own = attacker.start(honest, job_variables=attacker.variables("run"), parameters=parameters)
    other = attacker.deploy("train", job_variables=attacker.variables("deployment"))
    by_deployment = attacker.start(other, parameters=parameters)
    for run_id in (own, by_deployment):
        # What runs is this installation's `train`, whatever the deployment calls its code.
        assert attacker.until(run_id, "COMPLETED", "FAILED", "CRASHED")["type"] == "COMPLETED"
        assert process_site.show(run_id)["job"]["name"] == "sleeper"
    assert attacker.got() == []


def test_a_work_pool_cannot_say_how_runs_are_started(
    attacker: Attacker, process_site: LiveSite
) -> None:
    before = process_site.call("GET", POOL)["base_job_template"]
    evil = {"job_configuration": attacker.variables("pool"), "variables": {"type": "object"}}
    process_site.call("PATCH", POOL, {"base_job_template": evil})
    try:
        honest = process_site.call("GET", "deployments/name/train/default")["id"]
        run_id = attacker.start(honest, parameters={"job": sleeper(2)})
        assert attacker.until(run_id, "COMPLETED", "FAILED", "CRASHED")["type"] == "COMPLETED"
    finally:
        process_site.call("PATCH", POOL, {"base_job_template": before})
    assert attacker.got() == []


def test_a_run_of_another_flow_is_refused_in_words(attacker: Attacker) -> None:
    foreign = attacker.deploy("evil", job_variables=attacker.variables("foreign"))
    ended = attacker.until(attacker.start(foreign), "COMPLETED", "FAILED", "CRASHED", "CANCELLED")
    assert (ended["type"], len(ended["message"].splitlines())) == ("FAILED", 1)
    assert 'flow "evil" is not one of headway\'s (estimate, rank, retrain-' in ended["message"]
    assert "`prefect worker start --type process`" in ended["message"]
    assert attacker.got() == []


def test_no_hook_is_looked_for_in_what_a_deployment_names(
    attacker: Attacker, process_site: LiveSite
) -> None:
    """Prefect loads the flow into the *worker* when a run crashes or is cancelled."""
    evil = attacker.deploy("train")
    run_id = attacker.start(evil, parameters={"job": sleeper(400)})
    process_site.until_training(run_id)
    flow = process_site.flow_pid(run_id)
    process_site.kill(flow)
    wait_for(
        lambda: live_flow(process_site.home / "state", run_id) not in {None, flow},
        lambda: f"{run_id} was not taken up\n{process_site.worker_log()}",
    )
    process_site.until(run_id, "Running")
    process_site.call(
        "POST", f"flow_runs/{run_id}/set_state", {"state": {"type": "CANCELLING"}, "force": False}
    )
    attacker.until(run_id, "CANCELLED")
    assert attacker.got() == []
    log = json.dumps(process_site.logged(run_id))
    assert "failed to retrieve flow" not in log
