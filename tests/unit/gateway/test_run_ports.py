"""How many connections to runs a user and a team have."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headway.errors import PortClosed
from headway.gateway.ports import MOST_AT_ONCE, MOST_OF_A_TEAM, RunPorts


class Stream:
    async def receive(self) -> bytes:
        return b""

    async def send(self, data: bytes) -> None: ...

    async def aclose(self) -> None: ...


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> RunPorts:
    async def connected(*_: object) -> Stream:
        return Stream()

    monkeypatch.setattr(RunPorts, "_connected", connected)
    return RunPorts(None)  # type: ignore[arg-type]


def of(owner: str, team: str) -> Any:
    return SimpleNamespace(record=SimpleNamespace(run_id="r", owner=owner, team=team))


def test_a_user_and_a_team_have_so_many_and_no_other_fewer(ports: RunPorts) -> None:
    async def tried() -> None:
        opened = [await ports.connect(of("ada", "vision"), 1) for _ in range(MOST_AT_ONCE)]
        with pytest.raises(PortClosed, match="its owner"):
            await ports.connect(of("ada", "vision"), 1)
        users = (f"user-{number}" for number in range(MOST_OF_A_TEAM))
        opened += [
            await ports.connect(of(user, "vision"), 1)
            for user, _ in zip(users, range(MOST_OF_A_TEAM - MOST_AT_ONCE), strict=False)
        ]
        with pytest.raises(PortClosed, match="its team"):
            await ports.connect(of("bob", "vision"), 1)
        await ports.connect(of("bob", "speech"), 1)
        for each in opened * 2:  # to close it twice counts once
            await each.aclose()
        await ports.connect(of("ada", "vision"), 1)
        assert ports._open[("vision",)] == 1

    anyio.run(tried)
