"""Parts of code in a node's cache, and the copy that a run gets."""

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from headway.code.unpack import ChunkCache, trim, unpack
from headway.errors import CacheUnusable, CodeMissing
from headway.model.code import CodeManifest
from headway.model.sent_files import SentFile

TEXTS = (b"print('one')\n", b"two", b"")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Elsewhere:
    """Gives parts, and notes who asked for them."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = {sha256(each): each for each in parts}
        self.asked: list[str] = []

    def __call__(self, sha256s: Collection[str]) -> dict[str, bytes]:
        self.asked += sha256s
        return {each: self.parts[each] for each in sha256s if each in self.parts}


MANIFEST = CodeManifest.of(
    [
        SentFile("train.py", len(TEXTS[0]), (sha256(TEXTS[0]),), executable=True),
        SentFile("src/deep/two", len(TEXTS[1]), (sha256(TEXTS[1]),)),
        SentFile("empty", 0, ()),
    ]
)


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere(*TEXTS)


@pytest.fixture
def cache(tmp_path: Path, elsewhere: Elsewhere) -> ChunkCache:
    return ChunkCache(tmp_path / "code" / "vision", MANIFEST.content_id, elsewhere)


def test_a_run_gets_a_copy_of_its_own(tmp_path: Path, cache, elsewhere) -> None:
    place = tmp_path / "work-1"
    unpack(MANIFEST, cache, place, None)
    assert (place / "train.py").read_bytes() == TEXTS[0]
    assert (place / "src/deep/two").read_bytes() == TEXTS[1]
    assert os.access(place / "train.py", os.X_OK)
    assert not os.access(place / "empty", os.X_OK)
    assert place.stat().st_mode & 0o077 == 0
    (place / "train.py").write_text("changed by the program")
    unpack(MANIFEST, cache, tmp_path / "work-2", None)
    assert (tmp_path / "work-2" / "train.py").read_bytes() == TEXTS[0]
    assert len(elsewhere.asked) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["code", "work-1", "work-2"]


def test_what_is_there_stays_as_its_program_left_it(tmp_path: Path, cache) -> None:
    place = tmp_path / "work-1"
    unpack(MANIFEST, cache, place, None)
    (place / "made").touch()
    unpack(MANIFEST, cache, place, None)
    assert (place / "made").exists()


def test_a_part_that_was_damaged_is_fetched_anew(tmp_path: Path, cache, elsewhere) -> None:
    assert cache.have(MANIFEST.chunks) == len(TEXTS[0]) + len(TEXTS[1])
    assert cache.have(MANIFEST.chunks) == 0
    for part in (tmp_path / "code" / "vision").iterdir():
        part.write_bytes(b"import os; os.system('canary')")
    unpack(MANIFEST, cache, tmp_path / "work-1", None)
    assert (tmp_path / "work-1" / "train.py").read_bytes() == TEXTS[0]


def test_other_content_than_was_promised_is_not_unpacked(tmp_path: Path, cache, elsewhere) -> None:
    elsewhere.parts[sha256(TEXTS[0])] = b"canary"
    with pytest.raises(CodeMissing):
        unpack(MANIFEST, cache, tmp_path / "work-1", None)
    assert not (tmp_path / "code" / "vision" / sha256(TEXTS[0])).exists()
    del elsewhere.parts[sha256(TEXTS[0])]
    with pytest.raises(CodeMissing, match="is not there any more"):
        unpack(MANIFEST, cache, tmp_path / "work-1", None)
    assert list(tmp_path.glob("*work*")) == []


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, cache, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(CacheUnusable, match="No space left"):
        unpack(MANIFEST, cache, tmp_path / "work-1", None)
    assert list(tmp_path.glob("*work*")) == []


def test_the_cache_lets_go_of_what_was_unused_longest(tmp_path: Path, cache) -> None:
    cache.have(MANIFEST.chunks)
    folder = tmp_path / "code"
    os.utime(folder / "vision" / sha256(TEXTS[1]), (1, 1))
    assert trim(folder, 1 << 20) == 0
    assert trim(folder, len(TEXTS[0])) == 1
    assert [each.name for each in folder.glob("*/*")] == [sha256(TEXTS[0])]
