"""Watching an array: how many wait, run and have ended, on one terminal."""

import json
from typing import Any

import pytest

from headway.errors import GatewayUnreachable
from headway.views.watch import watch_array
from tests.ports.clock import FakeClock


class Watched:
    """A gateway at which one array goes on from look to look."""

    def __init__(self, *looks: tuple[str, int, int, int]) -> None:
        self.looks = list(looks)
        self.away = 1
        self.members: list[dict[str, Any]] = []

    def array(self, array: str, *, members: bool = True) -> dict[str, Any]:
        if members:
            return {"array_id": array, "members": self.members}
        if self.away:
            self.away -= 1
            raise GatewayUnreachable("http://gate", "ConnectError")
        state, waiting, running, failed = self.looks[0]
        self.looks = self.looks[1:] or self.looks
        return {
            "state": state, "size": 20, "waiting": waiting, "running": running, "failed": failed,
            "cancelled": 0, "ended_well": 20 - waiting - running - failed, "expected_end_at": None,
        }  # fmt: skip


def test_who_watches_an_array_sees_its_members_end(capsys: pytest.CaptureFixture[str]) -> None:
    looks = [("Running", 12, 4, 1)] + [("Running", 0, 1, 1)] * 12 + [("Failed", 0, 0, 2)]
    watched = Watched(*looks)
    watched.members = [
        {"name": f"lr-{index}", "exit": {"kind": kind, "code": 1, "message": message}}
        for index, (kind, message) in enumerate(
            [("ok", "done"), ("failed", "no \x1b[2Jimage"), ("failed", "no \x1b[2Jimage")], start=1
        )
    ] + [{"name": "lr-4", "exit": None}]
    status = watch_array(watched, "a1", FakeClock(), machine=False)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert status == 1
    assert lines[0] == "12 wait, 4 run, 3 ended well, 1 failed"
    assert lines[1:3] == ["1 run, 18 ended well, 1 failed", "Failed: 18 ended well, 2 failed"]
    (why,) = lines[3:]
    assert why.startswith("2 × no ")
    assert why.endswith("image (headway show lr-2)")
    assert "\x1b" not in why


def test_machines_that_watch_an_array_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch_array(Watched(("Completed", 0, 0, 0)), "a1", FakeClock(), machine=True) == 0
    assert json.loads(capsys.readouterr().out) == {"array_id": "a1", "members": []}
