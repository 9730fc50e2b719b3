"""Who asks very often, with a token or without, waits; nobody else does."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headway.clock import SystemClock
from headway.gateway import door
from headway.gateway.door import Door
from headway.gateway.pages import SITE_PAGE, landing, login_for
from headway.model.access import Caller, Scope, token_digest
from headway.node.shares import LoopShares

GOOD = {team: f"hwt_{letter * 43}" for team, letter in (("vision", "a"), ("speech", "b"))}


@pytest.fixture(autouse=True)
def shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LOOP", LoopShares())


class Known:
    """A ledger with two tokens."""

    access_tokens: Any

    def __init__(self) -> None:
        self.access_tokens = self

    def valid(self, digest: str) -> Any:
        for team, token in GOOD.items():
            if digest == token_digest(token):
                caller = Caller("ada", team, frozenset({Scope.WATCH}))
                return SimpleNamespace(token_id=team, caller=caller)
        return None


class Asking:
    """A door, and what becomes of those who ask there."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.answered: list[int] = []
        self.leave = anyio.Event()
        self.door = Door(
            self._app, ledger=Known, clock=SystemClock(), open_paths=(), login=login_for
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.inside.append(scope["state"]["caller"].team)
        if scope["path"] != "/v1/nodes":
            await self.leave.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, token: str, path: str = "/v1/nodes", where: str = "10.0.0.1") -> int:
        got: list[int] = []

        async def send(message: Any) -> None:
            got.append(message.get("status", 0))

        async def receive() -> Any:
            await anyio.sleep_forever()

        shown = [(b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http", "method": "POST", "path": path, "headers": shown, "client": (where, 1)
        }  # fmt: skip
        await self.door(scope, receive, send)
        self.answered.append(got[0])
        return got[0]


@pytest.mark.parametrize("token", ["no token", f"hwt_{'x' * 43}", GOOD["speech"]])
def test_many_questions_of_one_keep_no_other_waiting(token: str) -> None:
    async def both() -> None:
        asking = Asking()
        async with anyio.create_task_group() as group:
            for _ in range(4000):
                group.start_soon(asking.ask, token)
            assert await asking.ask(GOOD["vision"], where="10.0.0.2") == 200
            assert len(asking.answered) < 2000
            group.cancel_scope.cancel()

    anyio.run(both)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/rehearsals", 1),
        ("/v1/estimates", 1),
        ("/v1/job-files", 1),
        ("/v1/runs/x/ways", 1),
        ("/v1/queue", 4),
        ("/v1/runs/x/log", 100),
    ],
)
def test_a_team_has_so_many_questions_at_work_and_another_its_own(path: str, most: int) -> None:
    async def both() -> None:
        asking = Asking()
        async with anyio.create_task_group() as group:
            for _ in range(150):
                group.start_soon(asking.ask, GOOD["speech"], path)
            with anyio.fail_after(20):
                while asking.inside.count("speech") < most:  # noqa: ASYNC110 - threads are in between
                    await anyio.sleep(0.01)
            assert await asking.ask(GOOD["vision"]) == 200
            assert asking.inside.count("speech") == most
            group.cancel_scope.cancel()

    anyio.run(both)


@pytest.mark.parametrize(
    "target",
    [
        "/headway",
        "/runs/flow-run/0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11?tab=Logs&x=%2F%2Fevil",
        "/v1/runs/0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11/session",
        "/v1/runs/x/outputs/a/b/c/lr=0.1,n=2.csv",
        "/v1/logins",
        "/dashboard/",
    ],
)
def test_a_login_leads_to_a_page_of_this_gateway(target: str) -> None:
    assert landing(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "", "/", "//evil.example", "///evil.example", "/\\evil.example", "\\evil.example",
        "/a//evil.example", "/a/../..//evil.example", "/./a", "/.git", "https://evil.example",
        "javascript:alert(1)", "evil.example", "/%2Fevil.example", "/%5Cevil.example",
        "/a%0d%0aSet-Cookie:x=1", "/a\r\nSet-Cookie: x=1", "/\t/evil.example", "/a\n", "\n/a",
        "/a?b\r\nc", "/a?b c", "/a?b\\c", "/a#b", "/ä", "/a?ä", "/a@evil.example", "/a;b",
        "/api/flow_runs", "/api", "/api?x", "/v1/login", "/v1/login?next=/a", "/" + "a" * 2000,
    ],
)  # fmt: skip
def test_a_login_leads_nowhere_else(target: str) -> None:
    assert landing(target) == SITE_PAGE
