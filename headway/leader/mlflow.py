"""Writes the ends of runs to the MLflow server that their team names, over its REST API.

The site's services do, with what the team's block has: no run, job or log ever holds it.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import httpx
from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, field_validator

from headway.errors import shown
from headway.model.notice import RUN_TAG, TRACKER
from headway.units import MIB
from headway.views.tracked_run import TrackedRun

_WITHIN_S = 10.0
"""For one question."""
_EXPERIMENTS, _RUNS = 1000, 20
_MOST_BYTES = 8 * MIB
"""Of one answer: it is read in the scheduler's process."""
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

    model_config = ConfigDict(hide_input_in_errors=True)

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

    @field_validator("secret")
    @classmethod
    def _of_one_line(cls, secret: SecretStr | None) -> SecretStr | None:
        """What a header can have: httpx's error would show any other."""
        text = secret.get_secret_value().strip() if secret is not None else ""
        if not (text.isascii() and text.isprintable()):
            raise ValueError("give a secret of printable ASCII characters")
        return SecretStr(text) if text else None

    def client(self, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
        """Asks the server; follows it nowhere else. *transport* takes the place of the network."""
        secret = self.secret.get_secret_value() if self.secret is not None else ""
        auth = httpx.BasicAuth(self.user, secret) if self.user else None
        headers = {"Authorization": f"Bearer {secret}"} if secret and auth is None else {}
        return httpx.AsyncClient(
            base_url=f"{self.url}/api/2.0/mlflow/",
            auth=auth,
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=_WITHIN_S,
            transport=transport,
        )


async def write(server: httpx.AsyncClient, run: TrackedRun) -> None:
    """Write *run* onto one of its own in its team's experiment, and onto those of its program.

    Done twice it does no harm.

    Raises:
        httpx.HTTPError: The server does not answer, or not as MLflow does.
        MlflowRefused: It will never take it.
    """
    at = _ms(run.ended_at)
    metrics = [
        {"key": name, "value": value, "timestamp": at, "step": 0}
        for name, value in run.metrics.items()
    ]
    own = await _own(server, run)
    tagged = f"tags.`{RUN_TAG}` = '{run.tags[RUN_TAG]}'"
    newest = {"max_results": _EXPERIMENTS, "order_by": ["last_update_time DESC"]}
    experiments = (await _ask(server, "experiments/search", newest)).get("experiments", [])
    places = [each["experiment_id"] for each in experiments]
    for run_id in dict.fromkeys([own, *await _found(server, places, tagged)]):
        told = {"run_id": run_id, "metrics": metrics, "tags": _pairs(run.tags)}
        await _ask(server, "runs/log-batch", told)
    await _ask(server, "runs/update", {"run_id": own, "status": run.status, "end_time": at})


async def _own(server: httpx.AsyncClient, run: TrackedRun) -> str:
    """The run that headway began for *run*, in the experiment of its team and recipe alone."""
    name = run.experiment
    asked = {"experiment_name": name}
    answer, told = await _answer(server, "GET", "experiments/get-by-name", params=asked)
    if answer.status_code == httpx.codes.NOT_FOUND:
        experiment = (await _ask(server, "experiments/create", {"name": name}))["experiment_id"]
    else:
        experiment = _read(answer, told)["experiment"]["experiment_id"]
    tags = {RUN_TAG: run.tags[RUN_TAG], _SOURCE: _OURS}
    which = " AND ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    if found := await _found(server, [experiment], which):
        return found[0]
    begun = {
        "experiment_id": experiment,
        "run_name": run.name,
        "start_time": _ms(run.started_at),
        "tags": _pairs({**run.tags, **tags}),
    }
    return str((await _ask(server, "runs/create", begun))["run"]["info"]["run_id"])


async def _found(server: httpx.AsyncClient, experiments: Sequence[str], which: str) -> list[str]:
    """MLflow's runs there of which a filter is true: the first ones."""
    asked = {
        "experiment_ids": experiments,
        "filter": which,
        "order_by": ["attributes.start_time ASC"],
        "max_results": _RUNS,
    }
    runs = (await _ask(server, "runs/search", asked)).get("runs", []) if experiments else []
    return [str(each["info"]["run_id"]) for each in runs[:_RUNS]]


async def _ask(server: httpx.AsyncClient, what: str, told: Mapping[str, Any]) -> Any:
    return _read(*await _answer(server, "POST", what, json=told))


async def _answer(
    server: httpx.AsyncClient, method: str, what: str, **asked: Any
) -> tuple[httpx.Response, bytes]:
    """What the server answers, not unpacked whatever it says of its encoding."""
    told = bytearray()
    async with server.stream(method, what, **asked) as answer:
        async for piece in answer.aiter_raw():
            told += piece
            if len(told) > _MOST_BYTES:
                why = f"{answer.status_code} with more than {_MOST_BYTES // MIB} MiB"
                raise httpx.HTTPStatusError(why, request=answer.request, response=answer)
    return answer, bytes(told)


def _read(answer: httpx.Response, body: bytes) -> Any:
    """What the server has answered; its errors without its address, which readers need not see."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if answer.is_success and isinstance(told, dict):
        return told
    why = f"{answer.status_code} {shown(answer.reason_phrase)[1:-1]}"
    if isinstance(told, dict) and "message" in told:
        why += f": {shown(str(told['message']), 200)[1:-1]}"
    # Another pool may have made the experiment at the same moment.
    again = isinstance(told, dict) and told.get("error_code") == "RESOURCE_ALREADY_EXISTS"
    if answer.status_code == httpx.codes.BAD_REQUEST and isinstance(told, dict) and not again:
        raise MlflowRefused(why)
    raise httpx.HTTPStatusError(why, request=answer.request, response=answer)


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": text} for name, text in tags.items()]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
