"""What a job's user may have put where its wrapper writes: it is not followed, nor believed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.engine.place import Place
from headway.engine.port import Gang, Request

ENDED = {"job": "7", "started_at": 1.0, "ended_at": 2.0, "exit_code": 0}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path / "place")
    request = Request("r-1", "n", "p", ("true",), 1, 1, parts=(Gang(2),))
    with found.locked("r-1"):
        found.prepare(request, "")
    (found.folder("r-1") / "own").mkdir()
    return found


@pytest.fixture
def own(place: Place) -> Path:
    return place.wrote("r-1")


def test_what_is_written_there_is_read(place: Place, own: Path) -> None:
    before = place.facts("r-1")
    (own / "ended.json").write_text(json.dumps(ENDED | {"host_peak_bytes": 5}))
    (own / "rank.1.json").write_text(json.dumps({"host_peak_bytes": 9}))
    (own / "claim").write_text("7")
    assert 0 not in before.touched
    assert 0 in place.facts("r-1").touched
    record, used = place.record("r-1"), place.used("r-1")
    assert record is not None
    assert used is not None
    assert (record.exit_code, used.host_peak_bytes) == (0, 9)
    assert place.began("r-1")
    assert place.noted("r-1") == "7"


def _hard_link(path: Path, to: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path.parent, 54322, 54322)
    os.chown(to, 54321, 54321)
    path.hardlink_to(to)


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "link": Path.symlink_to,
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "another's": _hard_link,
}


@pytest.mark.parametrize("kind", PLANTS)
def test_what_is_no_file_of_its_user_is_nothing(
    place: Place, own: Path, tmp_path: Path, kind: str
) -> None:
    place.note("r-1", "5")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(ENDED))
    for name in ("claim", "started.json", "ended.json", "batch.log"):
        PLANTS[kind](own / name, secret)
    assert place.record("r-1") is None
    assert place.used("r-1") is None
    if kind != "folder":
        assert place.said("r-1") == ""
        assert place.noted("r-1") == "5"
    place.facts("r-1")
    place.forget("r-1")
    assert secret.exists()


@pytest.mark.parametrize(
    "said",
    [
        {"exit_code": "none"},
        {"exit_code": 2**40},
        {"started_at": 1e300},
        {"ended_at": float("nan")},
        {"error": ["x"]},
        "[[]]",
        "[" * 100_000,
    ],
)
def test_a_record_that_no_wrapper_writes_is_none(place: Place, own: Path, said: Any) -> None:
    text = said if isinstance(said, str) else json.dumps(ENDED | said)
    (own / "ended.json").write_text(text)
    assert place.record("r-1") is None


def test_what_it_says_is_one_short_line(place: Place, own: Path) -> None:
    (own / "ended.json").write_text(json.dumps(ENDED | {"error": "a\x00\x1b[2J" + "b" * 10_000}))
    record = place.record("r-1")
    assert record is not None
    assert record.error.isprintable()
    assert len(record.error) == 500


@pytest.mark.parametrize("used", [{"host_peak_bytes": -1}, {"cpu_s": float("inf")}])
def test_what_no_machine_can_have_used_is_not_known(place: Place, own: Path, used: Any) -> None:
    (own / "ended.json").write_text(json.dumps(ENDED | used))
    assert place.used("r-1") is None


@pytest.mark.parametrize("claim", ["-u root", "7 8", "7/../../x", "", "x" * 300])
def test_a_claim_that_is_no_name_is_nobodys(place: Place, own: Path, claim: str) -> None:
    place.note("r-1", "5")
    (own / "claim").write_text(claim)
    assert place.noted("r-1") == "5"


def test_folders_deeper_than_a_stack_are_removed(place: Place, own: Path) -> None:
    here = os.open(own, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    place.forget("r-1")
    assert not list(place.root.glob(".forgotten*"))
