"""`headway forward` opens no port that can lead nowhere."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


def test_a_shell_needs_nothing_of_an_image_but_sh(tmp_path: Path) -> None:
    """The session's program and the command beside it, with no other program to be found."""
    sh = "/bin/sh"
    (tmp_path / "sh").symlink_to(sh)
    alone = {"PATH": str(tmp_path)}
    program, beside = (
        text.replace("/tmp/", f"{tmp_path}/") for text in (session._KINDS["shell"], session._SHELL)
    )
    with subprocess.Popen([sh, "-c", program], env=alone | {"RUN": "r1"}) as running:
        try:
            done = subprocess.run(
                [sh, "-c", beside], env=alone, input='echo "run $RUN"; exit 3\n',
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stdout, done.stderr) == (3, "run r1\n", "")
            assert running.wait(60) == 0
        finally:
            running.kill()
