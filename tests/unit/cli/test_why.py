"""What `headway why` prints for people."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from headway.cli import queue as command
from headway.client import Client
from headway.credentials import Address

UNKNOWN = dict.fromkeys(("earliest_start_at", "expected_start_at", "latest_start_at"))
NOT_NOW: dict[str, Any] = {**UNKNOWN, "starts_now": False, "start_unknown": ""}
FOUND = {
    "run_id": "r1", "name": "digits", "resource": "gpu_memory", "position": 2,
    "reason": "needs 20.0 GiB on one GPU", "promised_start_at": None, **NOT_NOW,
    "holders": [
        {"run_id": None, "name": None, "team": None, "node": "a", "gpus": 1,
         "gpu_memory_bytes": 2**34, "host_memory_bytes": 2**33, "cpus": 2.0,
         "expected_end_at": None},
    ],
    "ahead": [{"position": 1, "run_id": "r2", "name": "vgg", "team": "red", "why": "it is short"}],
    "changes": [
        {**NOT_NOW, "field": "resources.gpu_memory", "value": 2**33, "starts_now": True,
         "text": "8.0 GiB of each GPU instead of 20.0 GiB", "expected_end_at": None},
    ],
}  # fmt: skip


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the gateway answers."""
    found = dict(FOUND)

    def gateway(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/runs/digits/why"
        return httpx.Response(200, json=found)

    address = Address("http://127.0.0.1:1", "token")
    transport = httpx.MockTransport(gateway)
    monkeypatch.setattr(command, "open_client", lambda: Client(address, transport=transport))
    return found


def test_it_says_who_has_it_who_is_ahead_and_what_would_help(answer: dict[str, Any]) -> None:
    said = CliRunner().invoke(command.why, ["digits"]).output
    assert said.startswith("digits waits: needs 20.0 GiB on one GPU\nexpected to start: not known")
    for words in ("another team's", "16.0 GiB", "vgg", "it is short", "8.0 GiB of each GPU"):
        assert words in said
    assert json.loads(CliRunner().invoke(command.why, ["digits", "--json"]).output) == answer


def test_it_says_so_where_nothing_would_help_and_how_many_are_not_shown(
    answer: dict[str, Any],
) -> None:
    answer.update(changes=[], holders=FOUND["holders"] * 12, ahead=[])
    said = CliRunner().invoke(command.why, ["digits"]).output
    assert "no single change of what it asks would start it notably earlier" in said
    assert "… and 2 more; --json has all of them" in said
    assert "who is ahead" not in said
