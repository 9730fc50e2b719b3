"""Flow runs as Prefect's server sends them, and apart from them those that it cannot send."""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from pydantic import ValidationError

from headway.prefect.unreadable import Apart, apart


@dataclass(frozen=True, slots=True)
class FlowRunPage:
    """What the server said of some runs."""

    runs: list[FlowRun] = field(default_factory=list)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Types of the states of those that it cannot send, by id."""

    def __len__(self) -> int:
        """How many runs it is about."""
        return len(self.runs) + len(self.unreadable)


class FlowRunReader:
    """Reads flow runs, however many of them the server cannot send."""

    def __init__(self, client: PrefectClient) -> None:
        """Through Prefect's own *client*."""
        self._client = client

    async def page(
        self, wanted: Mapping[str, Any], *, pool: str, limit: int, offset: int
    ) -> FlowRunPage:
        """Runs of the work pool *pool* for which *wanted* holds, those due last first."""
        pools = {"name": {"any_": [pool]}}
        newest = FlowRunSort.EXPECTED_START_TIME_DESC
        try:
            runs = await self._client.read_flow_runs(
                work_pool_filter=WorkPoolFilter.model_validate(pools),
                flow_run_filter=FlowRunFilter.model_validate(wanted),
                sort=newest,
                limit=limit,
                offset=offset,
            )
        except (httpx.HTTPStatusError, ValidationError) as error:
            _check_is_about_a_row(error)
            asked = {"work_pools": pools, "sort": newest, "limit": limit, "offset": offset}
            return await self._without_unreadable(wanted, await self._states(wanted, **asked))
        return FlowRunPage(runs)

    async def these(self, run_ids: Collection[str], **more: Any) -> FlowRunPage:
        """Those of *run_ids* for which the filters *more* hold; at most a page of them."""
        ids = list(run_ids)
        runs = await self._read(ids, more)
        if runs is not None:
            return FlowRunPage(runs)
        states = await self._states({**more, "id": {"any_": ids}}, limit=len(ids))
        return await self._without_unreadable(more, states)

    async def _without_unreadable(
        self, wanted: Mapping[str, Any], states: Mapping[str, str]
    ) -> FlowRunPage:
        search: Generator[Sequence[str], list[FlowRun] | None, Apart[FlowRun]]
        search = apart(list(states))
        try:
            part = next(search)
            while True:
                part = search.send(await self._read(part, wanted))
        except StopIteration as found:
            readable, unreadable = found.value
            return FlowRunPage(readable, {run_id: states[run_id] for run_id in unreadable})

    async def _read(
        self, run_ids: Sequence[str], wanted: Mapping[str, Any]
    ) -> list[FlowRun] | None:
        """These runs; None where the server fails, or sends what is no flow run."""
        asked = FlowRunFilter.model_validate({**wanted, "id": {"any_": list(run_ids)}})
        try:
            return await self._client.read_flow_runs(flow_run_filter=asked)
        except (httpx.HTTPStatusError, ValidationError) as error:
            _check_is_about_a_row(error)
            return None

    async def _states(self, wanted: Mapping[str, Any], **more: Any) -> dict[str, str]:
        """Types of the states of runs, by id, from where no parameters are sent."""
        asked = FlowRunFilter.model_validate(wanted).model_dump(mode="json", exclude_unset=True)
        body = {"flow_runs": asked, **more}
        answer = await self._client.request("POST", "/ui/flow_runs/history", json=body)
        return {str(row["id"]): str(row["state_type"]) for row in answer.json()}


def _check_is_about_a_row(error: httpx.HTTPStatusError | ValidationError) -> None:
    """Raise *error* again unless it may be the fault of one of the rows."""
    code = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    if code not in {None, httpx.codes.INTERNAL_SERVER_ERROR}:
        raise error
