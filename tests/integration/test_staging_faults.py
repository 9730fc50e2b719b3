"""Staging under faults: killed in mid-copy, raced by others, on a full disk."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from headway.errors import InvalidInput
from headway.model.job_parts import Dataset
from headway.staging.cache import DataCache, StagedDataset
from headway.staging.errors import CacheFull
from headway.staging.partial import Partial
from headway.units import MIB
from tests.integration.staging_process import cache_at
from tests.ports.staging import MemoryIndex, OpenReader
from tests.support.small_disk import small_disk

BUDGET = 100 * MIB
ROOT = Path(__file__).parents[2]


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv"
    path.write_bytes(os.urandom(40 * MIB))
    return path


class Stager:
    """A process that stages; in its block it lives."""

    def __init__(self, root: Path, uri: Path, run_id: str, pause_s: float = 0.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.staging_process",
             str(root), str(BUDGET), run_id, str(pause_s), str(uri)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split(" ", 1)

    def wait_done(self, done_bytes: int) -> None:
        while True:
            word, rest = self.line()
            assert word == "done"
            if int(rest) >= done_bytes:
                return

    def result(self) -> dict[str, object]:
        word, rest = "", ""
        while word != "staged":
            word, rest = self.line()
        return json.loads(rest)  # type: ignore[no-any-return]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        self._process.communicate("\n", timeout=30)
        assert self._process.returncode == 0


def stage(cache: DataCache, uri: object, run_id: str = "r") -> StagedDataset:
    return cache.stage(Dataset(uri=str(uri)), run_id, progress=lambda done, total: None)


@pytest.mark.parametrize("done_bytes", [0, 20 * MIB, 40 * MIB])
def test_a_fetch_killed_at_any_moment_leaves_no_set(
    tmp_path: Path, flights: Path, done_bytes: int
) -> None:
    cache = cache_at(tmp_path / "node", BUDGET)
    with Stager(tmp_path / "node", flights, "r1", pause_s=0.05) as stager:
        stager.wait_done(done_bytes)
        stager.kill()
    assert len(Partial.found_in(cache._folders.tmp)) == 1
    assert not list(cache._folders.sets.iterdir())
    staged = stage(cache, flights, "r2")
    assert not staged.from_cache
    assert staged.path.read_bytes() == flights.read_bytes()
    assert not Partial.found_in(cache._folders.tmp)


def test_sweeping_spares_the_living_and_removes_the_dead(tmp_path: Path, flights: Path) -> None:
    cache = cache_at(tmp_path / "node", BUDGET)
    other = tmp_path / "other"
    other.write_bytes(os.urandom(20 * MIB))
    with (
        Stager(tmp_path / "node", flights, "r1", pause_s=0.2) as living,
        Stager(tmp_path / "node", other, "r2", pause_s=0.2) as dead,
    ):
        living.wait_done(4 * MIB)
        dead.wait_done(4 * MIB)
        dead.kill()
        assert cache.sweep() == 1
        result = living.result()
        assert cache.sweep() == 0
        assert Path(str(result["path"])).read_bytes() == flights.read_bytes()
        living.finish()


def test_who_waits_sees_progress_and_copies_nothing(tmp_path: Path, flights: Path) -> None:
    cache = cache_at(tmp_path / "node", BUDGET)
    seen: list[tuple[int, int | None]] = []
    with Stager(tmp_path / "node", flights, "r1", pause_s=0.2) as stager:
        stager.wait_done(4 * MIB)
        staged = cache.stage(
            Dataset(uri=str(flights)),
            "r2",
            progress=lambda done, total: seen.append((done, total)),
        )
        stager.finish()
    assert staged.from_cache
    assert any(0 < done < 40 * MIB and total == 40 * MIB for done, total in seen)
    assert seen[-1] == (40 * MIB, 40 * MIB)


def test_a_set_recorded_but_not_there_is_fetched(tmp_path: Path, flights: Path) -> None:
    index = MemoryIndex()
    cache = DataCache(tmp_path / "cache", BUDGET, index, node="n")
    staged = stage(cache, flights)
    staged.path.parents[1].rename(tmp_path / "gone")  # as if killed just before the rename
    again = stage(cache, flights, "r2")
    assert not again.from_cache
    (only,) = index.list("n")
    assert only.run_ids == ("r", "r2")


def test_cleaning_up_never_takes_what_another_has(tmp_path: Path) -> None:
    """Four jobs stage, check and release three sets of which two fit, and sweep all the time."""
    sets = []
    for n in range(3):
        sets.append(tmp_path / f"set{n}")
        sets[-1].write_bytes(bytes([n]) * 2 * MIB)
    budget, caches = 5 * MIB, []
    wrong: list[object] = []

    def job(number: int) -> None:
        cache = cache_at(tmp_path / "node", budget)
        caches.append(cache)
        choice = random.Random(number)
        for turn in range(25):
            wanted, run_id = choice.choice(sets), f"r{number}-{turn}"
            try:
                staged = stage(cache, wanted, run_id)
            except CacheFull:
                continue  # the others hold two sets
            cache.sweep()
            if staged.path.read_bytes() != wanted.read_bytes():
                wrong.append((number, turn))
            cache.release(run_id)

    def run(number: int) -> None:
        try:
            job(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    cache = caches[0]
    stored = {folder.name for folder in cache._folders.sets.iterdir()}
    assert stored == {each.key for each in cache.index.list("n")}
    assert sum(each.size_bytes for each in cache.index.list("n")) <= budget
    assert not Partial.found_in(cache._folders.tmp)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16) as mounted:
        yield mounted


def test_more_than_the_disk_has_is_refused_before_a_byte_is_copied(
    disk: Path, flights: Path
) -> None:
    cache = DataCache(disk, BUDGET, MemoryIndex(), node="n")
    copied: list[int] = []
    with pytest.raises(CacheFull) as full:
        cache.stage(
            Dataset(uri=str(flights)),
            "r1",
            progress=lambda done, total: copied.append(done),
        )
    assert full.value.needed_bytes == 40 * MIB
    assert full.value.free_bytes <= 16 * MIB
    assert copied == []
    assert not Partial.found_in(cache._folders.tmp)


def test_unused_sets_give_way_to_a_full_disk(disk: Path, tmp_path: Path) -> None:
    cache = DataCache(disk, BUDGET, MemoryIndex(), node="n")
    for n in range(2):
        (tmp_path / f"set{n}").write_bytes(os.urandom(9 * MIB))
    stage(cache, tmp_path / "set0", "r0")
    cache.release("r0")
    assert stage(cache, tmp_path / "set1", "r1").path.exists()


def test_a_disk_that_fills_in_mid_copy_is_cleaned_up(disk: Path, tmp_path: Path) -> None:
    cache = DataCache(disk, BUDGET, MemoryIndex(), node="n")
    (tmp_path / "set").write_bytes(os.urandom(12 * MIB))

    def progress(done: int, total: int | None) -> None:
        (disk / "somebody-else").write_bytes(bytes(8 * MIB))

    with pytest.raises(CacheFull, match="set"):
        cache.stage(
            Dataset(uri=str(tmp_path / "set")),
            "r1",
            progress=progress,
        )
    assert not Partial.found_in(cache._folders.tmp)
    (disk / "somebody-else").unlink()
    assert stage(cache, tmp_path / "set").size_bytes == 12 * MIB


class Sizeless(MemoryFileSystem):
    """Tells no sizes, as web servers that compress do."""

    protocol = "sizeless"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("sizeless://", "memory://"))

    def info(self, path: str, **values: Any) -> dict[str, Any]:
        return {**super().info(path, **values), "size": None}


def test_a_source_without_a_size_gets_room_in_steps(tmp_path: Path) -> None:
    fsspec.register_implementation("sizeless", Sizeless, clobber=True)
    fsspec.filesystem("sizeless").pipe("/set", os.urandom(40 * MIB))

    def fetch(folder: str, budget: int, size: int | None = None) -> StagedDataset:
        root = tmp_path / folder
        cache = DataCache(root, budget, MemoryIndex(), node="n", reader=OpenReader())
        dataset = Dataset.model_construct(uri="sizeless://set", sha256=None, size=size)
        try:
            return cache.stage(dataset, "r", progress=lambda done, total: None)
        finally:
            assert not Partial.found_in(cache._folders.tmp)

    assert fetch("cache", 41 * MIB).size_bytes == 40 * MIB
    with pytest.raises(CacheFull):
        fetch("small", 39 * MIB)
    with pytest.raises(InvalidInput, match=r"dataset.size"):
        fetch("small", 39 * MIB, size=8 * MIB)
    Sizeless.store.clear()
