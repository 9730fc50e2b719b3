"""Writes the ends of runs to the MLflow server that their team names, over its REST API.

The site's services do, with what the team's block has: no run, job or log ever holds it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import httpx
from prefect.blocks.core import Block
from pydantic import Field, SecretStr, field_validator

from headway.model.notice import RUN_TAG, TRACKER
from headway.views.tracked_run import TrackedRun

_WITHIN_S = 10.0
"""For one question."""
_EXPERIMENTS, _RUNS = 1000, 20
_SOURCE = "mlflow.source.name"
_OURS = "headway"


class MlflowRefused(Exception):
    """The server understands what is written, and will never take it."""


class HeadwayMlflow(Block):
    """What a team's `tracker` may name as ``headway-mlflow/NAME``."""

    _block_type_name: ClassVar[str] = "Headway MLflow"
    _block_type_slug: ClassVar[str] = TRACKER
    _description: ClassVar[str] = (
        "The MLflow server to which the ends of a team's runs are written."
    )

    url: str = Field(title="Address", examples=["https://mlflow.example.org"])
    user: str = Field("", title="User", description="Empty where the secret is a token.")
    secret: SecretStr | None = Field(
        None, title="Secret", description="Password of the user, or a token; empty for none."
    )

    @field_validator("url")
    @classmethod
    def _without_secrets(cls, url: str) -> str:
        """An address is shown to operators, and so has no password."""
        given = httpx.URL(url)
        if given.scheme not in {"http", "https"} or not given.host or given.userinfo:
            raise ValueError("give an address such as https://mlflow.example.org, without a user")
        return url.rstrip("/")

    def client(self) -> httpx.AsyncClient:
        """Asks the server; follows it nowhere else."""
        secret = self.secret.get_secret_value() if self.secret is not None else ""
        auth = httpx.BasicAuth(self.user, secret) if self.user else None
        headers = {"Authorization": f"Bearer {secret}"} if secret and auth is None else {}
        return httpx.AsyncClient(
            base_url=f"{self.url}/api/2.0/mlflow/", auth=auth, headers=headers, timeout=_WITHIN_S
        )


async def write(server: httpx.AsyncClient, run: TrackedRun) -> None:
    """Write *run* onto the runs that its program began there, or else onto one of its own.

    Done twice it does no harm.

    Raises:
        httpx.HTTPError: The server does not answer, or not as MLflow does.
        MlflowRefused: It will never take it.
    """
    found = await _found(server, run.tags[RUN_TAG]) or [(await _begun(server, run), True)]
    at = _ms(run.ended_at)
    metrics = [
        {"key": name, "value": value, "timestamp": at, "step": 0}
        for name, value in run.metrics.items()
    ]
    for run_id, is_ours in found:
        told = {"run_id": run_id, "metrics": metrics, "tags": _pairs(run.tags)}
        await _ask(server, "runs/log-batch", told)
        if is_ours:
            await _ask(
                server, "runs/update", {"run_id": run_id, "status": run.status, "end_time": at}
            )


async def _found(server: httpx.AsyncClient, run_id: str) -> list[tuple[str, bool]]:
    """MLflow's runs with the run's tag, the first ones, and whether each is headway's own."""
    newest = {"max_results": _EXPERIMENTS, "order_by": ["last_update_time DESC"]}
    experiments = (await _ask(server, "experiments/search", newest)).get("experiments", [])
    asked = {
        "experiment_ids": [each["experiment_id"] for each in experiments],
        "filter": f"tags.`{RUN_TAG}` = '{run_id}'",
        "order_by": ["attributes.start_time ASC"],
        "max_results": _RUNS,
    }
    runs = (await _ask(server, "runs/search", asked)).get("runs", []) if experiments else []
    ours = {"key": _SOURCE, "value": _OURS}
    return [(each["info"]["run_id"], ours in each["data"].get("tags", [])) for each in runs]


async def _begun(server: httpx.AsyncClient, run: TrackedRun) -> str:
    """A run of its own in the experiment of its recipe."""
    name = run.experiment
    answer = await server.get("experiments/get-by-name", params={"experiment_name": name})
    if answer.status_code == httpx.codes.NOT_FOUND:
        experiment = (await _ask(server, "experiments/create", {"name": name}))["experiment_id"]
    else:
        experiment = _read(answer)["experiment"]["experiment_id"]
    begun = {
        "experiment_id": experiment,
        "run_name": run.name,
        "start_time": _ms(run.started_at),
        "tags": _pairs({**run.tags, _SOURCE: _OURS}),
    }
    return str((await _ask(server, "runs/create", begun))["run"]["info"]["run_id"])


async def _ask(server: httpx.AsyncClient, what: str, told: Mapping[str, Any]) -> Any:
    return _read(await server.post(what, json=told))


def _read(answer: httpx.Response) -> Any:
    """What the server has answered; its errors without its address, which readers need not see."""
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.is_success and isinstance(told, dict):
        return told
    why = f"{answer.status_code} {answer.reason_phrase}"
    if isinstance(told, dict) and "message" in told:
        why += f": {str(told['message'])[:200]}"
    if answer.status_code == httpx.codes.BAD_REQUEST and isinstance(told, dict):
        raise MlflowRefused(why)
    raise httpx.HTTPStatusError(why, request=answer.request, response=answer)


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": text} for name, text in tags.items()]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
