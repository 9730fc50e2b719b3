"""`headway outputs` of several runs: a folder for each, and nothing beside them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.cli.outputs import _NONE
from headway.client.run_files import OutputPlace
from headway.errors import GatewayRefused, RunUnknown


class Sent:
    """What a gateway sends of a file."""

    start, version = 0, "1"

    def __init__(self, data: bytes) -> None:
        self.sha256, self._data = hashlib.sha256(data).hexdigest(), data

    def pieces(self) -> Iterator[bytes]:
        yield self._data


class Gateway:
    """Runs by their names, what they have written, and one array."""

    def __init__(self) -> None:
        self.named: dict[str, str] = {}
        self.written: dict[str, dict[str, bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def array(self, name: str) -> dict[str, Any]:
        if name != "sweep":
            raise RunUnknown(name)
        return {"members": [self.run(each) for each in self.named]}

    def run(self, run: str) -> dict[str, Any]:
        ended = {"state": "Completed", "exit": None, "node": "a", "runtime_s": 38.0}
        progress = {"iteration": 9, "epoch": None, "total": 9, "metrics": {"loss": 0.25}}
        return {"run_id": run, "name": self.named[run], "progress": progress, **ended}

    def outputs(self, run: str, _attempt: int | None = None) -> dict[str, Any]:
        if run not in self.written:
            raise GatewayRefused(404, "no outputs")
        files = self.written[run].items()
        return {
            "files": [
                {"path": name, "href": name, "bytes": len(data), "modified": 1.0}
                for name, data in files
            ]
        }

    @contextmanager
    def output(self, place: OutputPlace, *, start: int = 0, version: str = "") -> Iterator[Sent]:
        yield Sent(self.written[place.run_id][place.href])

    def output_digest(self, place: OutputPlace) -> tuple[str, str]:
        return "1", hashlib.sha256(self.written[place.run_id][place.href]).hexdigest()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    made = Gateway()
    monkeypatch.setattr("headway.cli.outputs.open_client", lambda: made)
    return made


def fetch(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(headway, ["outputs", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_each_member_of_an_array_that_has_begun_has_its_folder(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.named = {"1": "sweep-1", "2": "sweep-2", "3": "sweep-3"}
    gateway.written = {"1": {"loss": b"1", "model.pt": b"x"}, "2": {"below/loss": b"2"}}
    status, said = fetch("sweep", tmp_path, "--only", "loss")
    assert (status, said) == (0, f"of 3 runs: 2 files fetched into {tmp_path} (2 B)\n")
    assert (tmp_path / "sweep-1/loss").read_bytes() == b"1"
    assert (tmp_path / "sweep-2/below/loss").read_bytes() == b"2"
    assert not (tmp_path / "sweep-1/model.pt").exists()
    gateway.written["3"] = {"loss": b"3"}
    assert "1 file fetched" in fetch("sweep", tmp_path, "--only", "loss")[1]


def test_several_runs_of_one_name_are_kept_apart(gateway: Gateway, tmp_path: Path) -> None:
    gateway.named = {"a": "digits", "b": "digits"}
    gateway.written = {"a": {"loss": b"a"}, "b": {"loss": b"b"}}
    assert fetch("a", "b", tmp_path)[0] == 0
    assert [(tmp_path / each / "loss").read_bytes() for each in ("digits", "b")] == [b"a", b"b"]


def test_no_name_leads_out_of_the_folder(gateway: Gateway, tmp_path: Path) -> None:
    gateway.named = {"a": "../../a", "b": "b"}
    gateway.written = {"a": {"../out": b"1", "link/out": b"2", "fine": b"3"}, "b": {}}
    (tmp_path / "elsewhere").mkdir()
    into = tmp_path / "below/into"
    assert fetch("a", "b", into)[0] == 1  # "../out"; "link" is a folder
    (into / "a/link/out").unlink()
    (into / "a/link").rmdir()
    (into / "a/link").symlink_to(tmp_path / "elsewhere")
    status, said = fetch("a", "b", into)
    assert (status, said.count("was not fetched")) == (1, 2), said
    assert (into / "a/fine").read_bytes() == b"3"
    assert not list((tmp_path / "elsewhere").iterdir())
    assert sorted(each.name for each in tmp_path.rglob("out")) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["below", "elsewhere"]


def test_without_a_folder_the_outputs_of_each_member_are_listed(gateway: Gateway) -> None:
    gateway.named = {"1": "sweep-1", "2": "sweep-2", "3": "sweep-3"}
    gateway.written = {"1": {"loss": b"1"}, "2": {"loss": b"2", "model.pt": b"x"}}
    for words in (["sweep"], ["sweep", "--list"]):
        status, said = fetch(*words)
        rows = [line.split()[:2] for line in said.splitlines()[1:]]
        assert status == 0
        assert rows == [["sweep-1", "loss"], ["sweep-2", "loss"], ["sweep-2", "model.pt"]]
    assert fetch("sweep", "--only", "*.txt") == (0, f"{_NONE}\n")
    assert fetch("sweep", "--json")[0] == 2


def test_results_of_a_run_are_one_row(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway.named = {"digits": "digits"}
    monkeypatch.setattr("headway.cli.arrays.open_client", lambda: gateway)
    heading, row = CliRunner().invoke(headway, ["results", "digits"]).output.splitlines()
    assert heading.split() == ["#", "run", "state", "ran", "for", "loss"]
    assert row.split() == ["1", "digits", "Completed", "38", "s", "0.25"]
