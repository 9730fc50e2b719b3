"""Outputs that grow in a folder while their run goes on."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.client.follow_outputs import Followed
from headway.client.run_files import OutputPlace
from headway.errors import GatewayRefused, GatewayUnreachable, RunUnknown
from headway.testing.clock import FakeClock


class Sent:
    """What a gateway sends of a file, in pieces."""

    def __init__(self, data: bytes, start: int) -> None:
        self.start, self.version, self.sha256 = start, "1", hashlib.sha256(data).hexdigest()
        self._data = data[start:]

    def pieces(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), 1000):
            yield self._data[at : at + 1000]


class Gateway:
    """Runs of one name each, and what they have written by now."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, bytes]] = {}
        self.ended: set[str] = set()
        self.members: list[str] | None = None
        self.more_come = True
        self.sent_bytes = 0
        self.away = False

    def array(self, name: str, *, members: bool = True) -> dict[str, Any]:
        if self.members is None:
            raise RunUnknown(name)
        rows = [
            {"run_id": run, "name": f"sweep-{run}", "exit": {} if run in self.ended else None}
            for run in self.members
        ]
        going = len(self.members) - len(self.ended)
        return {"array_id": name, "members": rows, "waiting": self.more_come, "running": going}

    def run(self, name: str) -> dict[str, Any]:
        return {"run_id": name, "name": "digits"}

    def standing(self, run: str) -> dict[str, Any]:
        return {"over": run in self.ended}

    def outputs(self, run: str, attempt: int | None = None) -> dict[str, Any]:
        if self.away:
            raise GatewayUnreachable("http://gateway", "it is away")
        if run not in self.written:
            raise GatewayRefused(404, "no outputs")
        files = [
            {"path": name, "href": name, "bytes": len(data), "modified": float(len(data))}
            for name, data in self.written[run].items()
        ]
        return {"files": files}

    @contextmanager
    def output(self, place: OutputPlace, *, start: int = 0, version: str = "") -> Iterator[Sent]:
        data = self.written[place.run_id][place.href]
        self.sent_bytes += len(data) - start
        yield Sent(data, start)

    def output_digest(self, place: OutputPlace) -> tuple[str, str]:
        data = self.written[place.run_id][place.href]
        return "1", hashlib.sha256(data).hexdigest()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def followed(gateway: Gateway, folder: Path, *runs: str, only: tuple[str, ...] = ()) -> Followed:
    return Followed(gateway, FakeClock(), runs, folder, only)  # type: ignore[arg-type]


LONG = bytes(range(256)) * 400


def test_a_file_grows_where_it_is_and_only_what_is_new_is_sent(gateway, tmp_path) -> None:
    gateway.written["a"] = {"events": LONG}
    follow = followed(gateway, tmp_path, "a")
    assert follow.step() == len(LONG)
    with (tmp_path / "events").open("rb") as reader:  # as TensorBoard holds it open
        assert reader.read() == LONG
        gateway.written["a"]["events"] += b"more"
        gateway.sent_bytes = 0
        assert follow.step() == 4
        assert gateway.sent_bytes < 5000
        assert reader.read() == b"more"
        assert (follow.step(), gateway.sent_bytes < 5000) == (0, True)
        gateway.written["a"]["events"] += b", and the end"
        gateway.ended.add("a")
        follow.step()
    assert follow.over
    assert (tmp_path / "events").read_bytes() == LONG + b"more, and the end"


@pytest.mark.parametrize("again", [LONG[::-1] + b"x", LONG[:100], b"", LONG[:50_000]])
def test_a_file_that_is_written_anew_is_fetched_anew(gateway, tmp_path, again) -> None:
    gateway.written["a"] = {"model.pt": LONG}
    follow = followed(gateway, tmp_path, "a")
    follow.step()
    gateway.written["a"] = {"model.pt": again}
    follow.step()
    assert (tmp_path / "model.pt").read_bytes() == again


def test_what_was_mixed_meanwhile_is_right_at_the_end(gateway, tmp_path) -> None:
    gateway.written["a"] = {"model.pt": LONG}
    follow = followed(gateway, tmp_path, "a")
    follow.step()
    # Longer, with the same bytes where the first one ended: nobody sees that it is another file.
    gateway.written["a"] = {"model.pt": b"x" * 10 + LONG[10:] + b"new"}
    follow.step()
    gateway.ended.add("a")
    follow.step()
    assert (tmp_path / "model.pt").read_bytes() == b"x" * 10 + LONG[10:] + b"new"
    assert not list(follow.failed)


def test_each_member_of_an_array_has_its_folder_once_it_has_begun(gateway, tmp_path) -> None:
    gateway.members = ["1"]
    gateway.written["1"] = {"loss": b"1"}
    follow = followed(gateway, tmp_path, "sweep")
    follow.step()
    gateway.members.append("2")
    gateway.written["2"] = {"below/loss": b"2"}
    gateway.ended = {"1", "2"}
    follow.step()
    assert not follow.over
    gateway.more_come = False
    follow.step()
    assert follow.over
    assert (tmp_path / "sweep-1/loss").read_bytes() == b"1"
    assert (tmp_path / "sweep-2/below/loss").read_bytes() == b"2"


def test_several_runs_of_one_name_are_kept_apart(gateway, tmp_path) -> None:
    gateway.written = {"a": {"loss": b"a"}, "b": {"loss": b"b"}}
    gateway.ended = {"a", "b"}
    follow = followed(gateway, tmp_path, "a", "b")
    follow.step()
    assert [(tmp_path / each / "loss").read_bytes() for each in ("digits", "b")] == [b"a", b"b"]


def test_a_gateway_that_is_away_is_asked_again(gateway, tmp_path) -> None:
    gateway.written["a"] = {"loss": b"1"}
    follow = followed(gateway, tmp_path, "a")
    gateway.away = True
    assert (follow.step(), follow.over) == (0, False)
    gateway.away = False
    assert follow.step() == 1


def test_no_name_leads_out_of_the_folder(gateway, tmp_path) -> None:
    gateway.written["a"] = {"../out": b"1", "link/out": b"2", "fine": b"3"}
    (tmp_path / "elsewhere").mkdir()
    into = tmp_path / "into"
    follow = followed(gateway, into, "a")
    (into / "link").symlink_to(tmp_path / "elsewhere")
    follow.step()
    gateway.ended.add("a")
    follow.step()
    assert len(list(follow.failed)) == 2
    assert (into / "fine").read_bytes() == b"3"
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()


def test_only_what_is_asked_for_comes(gateway, tmp_path) -> None:
    gateway.written["a"] = {"events": b"1", "model.pt": b"2"}
    followed(gateway, tmp_path, "a", only=("events*",)).step()
    assert not (tmp_path / "model.pt").exists()
