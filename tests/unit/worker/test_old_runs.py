"""Old runs go from Prefect before the ledger forgets that they are to go."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect.exceptions import ObjectNotFound

from headway.worker import old_runs
from headway.worker.old_runs import delete_expired_runs
from headway.worker.pool import PrefectPool

RUNS = [str(UUID(int=number)) for number in range(3)]


class Prefect:
    """A client whose server has the runs but the second; it may be away, or fail at one."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.away = False
        self.fails_at = ""

    async def delete_flow_run(self, run_id: UUID) -> None:
        if self.away:
            raise httpx.ConnectError("away")
        if str(run_id) == self.fails_at:
            request = httpx.Request("DELETE", "http://site/api")
            raise httpx.HTTPStatusError("500", request=request, response=httpx.Response(500))
        if str(run_id) == RUNS[1]:
            raise ObjectNotFound(Exception())
        self.removed.append(str(run_id))


def test_they_go_from_prefect_and_then_from_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_runs, "_expired", lambda _: RUNS)
    monkeypatch.setattr(old_runs, "_AT_ONCE", 2)
    prefect, gone = Prefect(), list[list[str]]()
    client: Any = prefect
    pool = PrefectPool(client, "gpu")
    site: Any = SimpleNamespace(
        ledger=SimpleNamespace(old_runs=SimpleNamespace(remove=gone.append))
    )
    assert asyncio.run(delete_expired_runs(site, pool)) == 3
    assert prefect.removed == [RUNS[0], RUNS[2]]
    assert gone == [RUNS[:2], RUNS[2:]]
    prefect.fails_at, gone[:] = RUNS[0], []
    assert asyncio.run(delete_expired_runs(site, pool)) == 2  # it keeps no other from going
    assert gone == [RUNS[1:2], RUNS[2:]]
    prefect.away = True
    with pytest.raises(httpx.ConnectError):
        asyncio.run(delete_expired_runs(site, pool))
    assert len(gone) == 2  # the next hour asks for the same again
