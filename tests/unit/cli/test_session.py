"""`headway forward` opens no port that can lead nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from headway.cli import session
from headway.cli.main import headway

RUN: dict[str, Any] = {
    "run_id": "r1",
    "name": "served",
    "state": "Running",
    "exit": None,
    "job": {},
}


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (RUN | {"state": "Completed", "exit": {"kind": "ok"}}, "give one that has not ended"),
        (RUN | {"lease": {"ports": [6006]}}, "name one of the run's ports, which are [6006]"),
    ],
    ids=["a run that has ended", "a port that is not the run's"],
)
def test_what_leads_nowhere_is_refused(
    view: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def client() -> Iterator[Any]:
        yield SimpleNamespace(run=lambda _: view)

    monkeypatch.setattr(session, "open_client", client)
    done = CliRunner().invoke(headway, ["forward", "served", "8080"])
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
