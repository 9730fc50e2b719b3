"""Data sets on real files: fetched once, checked, shared, evicted, and never half there."""

import hashlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import fsspec
import pytest

from headway.errors import InvalidInput
from headway.model.job_parts import Dataset
from headway.staging.cache import DataCache, StagedDataset
from headway.staging.errors import CacheFull, ChecksumMismatch, SourceChanged, SourceMissing
from headway.staging.reader import Reading
from headway.staging.source import SourceFile
from headway.units import MIB
from tests.ports.staging import MemoryIndex, OpenReader

Stage = Callable[..., StagedDataset]


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


@pytest.fixture
def cache(tmp_path: Path, index: MemoryIndex) -> DataCache:
    return DataCache(tmp_path / "cache", 100 * MIB, index, node="n")


@pytest.fixture
def stage(cache: DataCache) -> Stage:
    def run(uri: object, run_id: str = "r1", **values: object) -> StagedDataset:
        dataset = Dataset(uri=str(uri), **values)  # type: ignore[arg-type]
        return cache.stage(dataset, run_id, progress=lambda done, total: None)

    return run


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv"
    path.write_bytes(os.urandom(9 * MIB))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    (root / "cats").mkdir(parents=True)
    (root / "cats" / "b.png").write_bytes(b"cat b")
    (root / "cats" / "a.png").write_bytes(b"cat a")
    (root / "cats.txt").write_bytes(b"two")
    (root / "none").mkdir()
    return root


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def leftovers(cache: DataCache) -> list[str]:
    return [path.name for path in (cache._folders.root / "tmp").iterdir()]


def test_a_file_is_copied_checked_and_read_only(stage: Stage, flights: Path) -> None:
    staged = stage(flights, sha256=sha256(flights), size=9 * MIB)
    assert staged.path.read_bytes() == flights.read_bytes()
    assert staged.path.name == "flights.csv"
    assert (staged.size_bytes, staged.sha256) == (9 * MIB, sha256(flights))
    assert not staged.from_cache
    assert staged.path.stat().st_mode & 0o777 == 0o400
    assert staged.path.parent.stat().st_mode & 0o777 == 0o500


def test_the_second_run_copies_nothing(stage: Stage, flights: Path) -> None:
    first, second = stage(flights), stage(flights, "r2")
    assert second.from_cache
    assert second.path == first.path


def test_a_directory_has_the_digest_that_sha256sum_gives(stage: Stage, images: Path) -> None:
    (images / "back\\slash").write_text("x")
    staged = stage(images)
    command = r"find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    printed = subprocess.check_output(["bash", "-c", command], cwd=images, text=True)
    assert staged.sha256 == printed.split()[0]
    assert sorted(p.name for p in staged.path.rglob("*.png")) == ["a.png", "b.png"]
    assert staged.size_bytes == 14


def test_a_name_that_is_no_text_is_found_again(stage: Stage, images: Path) -> None:
    (images / "\udcff").write_text("x")
    assert (stage(images).path / "\udcff").read_text() == "x"
    assert stage(images, "r2").from_cache


def test_a_changed_source_is_not_served_stale(stage: Stage, flights: Path) -> None:
    old = stage(flights)
    flights.write_bytes(b"new")
    new = stage(flights, "r2")
    assert not new.from_cache
    assert new.path.read_bytes() == b"new"
    assert old.path.stat().st_size == 9 * MIB  # the first run still has what it began with


def test_a_wrong_checksum_keeps_nothing(
    stage: Stage, cache: DataCache, index: MemoryIndex, flights: Path
) -> None:
    with pytest.raises(ChecksumMismatch) as wrong:
        stage(flights, sha256="0" * 64)
    assert wrong.value.found == sha256(flights)
    assert leftovers(cache) == []
    assert index.list("n") == []
    assert list((cache._folders.root / "sets").iterdir()) == []


def test_far_more_than_declared_stops_early(
    cache: DataCache, flights: Path, memory: fsspec.AbstractFileSystem
) -> None:
    with pytest.raises(InvalidInput, match=r'dataset.size: got "4MiB"; the data set has 9.0 MiB'):
        cache.stage(
            Dataset(uri=str(flights), size=4 * MIB),
            "r1",
            progress=lambda done, total: pytest.fail("copied"),
        )


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    file_system = fsspec.filesystem("memory")
    file_system.store.clear()
    yield file_system
    file_system.store.clear()


def test_what_may_be_listed_and_not_read_is_not_given_from_the_cache(
    tmp_path: Path, index: MemoryIndex, memory: fsspec.AbstractFileSystem
) -> None:
    class Closed(OpenReader):
        @contextmanager
        def reading(self, uri: str, check: Callable[[], None]) -> Iterator[Reading]:
            with super().reading(uri, check) as opened:
                opened.probe = refuse  # type: ignore[method-assign]
                yield opened

    def refuse(file: SourceFile) -> None:
        raise SourceMissing("memory://set", f"{file.name} may be listed, and not be read")

    memory.pipe("/set/a", b"one")
    for reader in (OpenReader(), Closed()):
        cache = DataCache(tmp_path / "cache", 100 * MIB, index, node="n", reader=reader)
        expected = pytest.raises(SourceMissing) if index.list("n") else nullcontext()
        with expected:
            dataset = Dataset.model_construct(uri="memory://set", sha256=None, size=None)
            cache.stage(dataset, "r1", progress=lambda done, total: None)


def test_other_storage_comes_through_fsspec(
    tmp_path: Path, index: MemoryIndex, memory: fsspec.AbstractFileSystem
) -> None:
    cache = DataCache(tmp_path / "cache", 100 * MIB, index, node="n", reader=OpenReader())

    def stage(uri: str) -> StagedDataset:
        dataset = Dataset.model_construct(uri=uri, sha256=None, size=None)
        return cache.stage(dataset, "r", progress=lambda done, total: None)

    memory.pipe({"/set/x/1": b"one", "/set/2": b"two"})
    staged = stage("memory://set")
    assert (staged.path / "x" / "1").read_bytes() == b"one"
    assert stage("memory://set").from_cache
    memory.pipe({"/set/2": b"TWO"})
    assert not stage("memory://set").from_cache


@pytest.mark.parametrize("name", ["gone", "images/none", "images/cats/a.png/deeper"])
def test_what_is_not_there_names_the_field(stage: Stage, images: Path, name: str) -> None:
    with pytest.raises((SourceMissing, InvalidInput), match=r"dataset\.uri"):
        stage(images.parent / name)


@pytest.mark.parametrize(
    "uri",
    [
        "set",
        "./set",
        "~/set",
        "file://set",
        "/data/../etc",
        "/dev/zero",
        "/proc/self/environ",
        "zip://a::/x.zip",
        "s3://a/../b",
        "nosuch://x",
        "memory://a",
        "github://org:repo@main/x",
        "simplecache::file:///etc/passwd",
        "reference://x",
    ],
)
def test_addresses_that_mean_something_else_are_refused(stage: Stage, uri: str) -> None:
    with pytest.raises(InvalidInput, match=r"dataset\.uri"):
        stage(uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("az://container/set", r"pip install 'headway\[az\]'"),
        ("sftp://host/etc/passwd", "no Secret block is named for its server"),
    ],
)
def test_what_cannot_be_read_here_is_missing(stage: Stage, uri: str, why: str) -> None:
    with pytest.raises(SourceMissing, match=why):
        stage(uri)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "cats", "nowhere"])
def test_links_that_lead_out_are_refused(stage: Stage, images: Path, target: str) -> None:
    (images.parent / "secret").write_text("x")
    (images / "link").symlink_to(target)
    with pytest.raises(SourceMissing):
        stage(images)


def test_a_link_that_stays_inside_is_copied(stage: Stage, images: Path) -> None:
    (images / "link").symlink_to("cats/a.png")
    staged = stage(images)
    assert (staged.path / "link").read_bytes() == b"cat a"
    assert not (staged.path / "link").is_symlink()


def test_a_fifo_in_a_set_does_not_hang(stage: Stage, images: Path) -> None:
    os.mkfifo(images / "pipe")
    with pytest.raises(SourceMissing, match="pipe"):
        stage(images)


@pytest.mark.parametrize("damage", ["truncate", "overwrite", "delete", "manifest"])
def test_a_damaged_copy_is_fetched_anew(stage: Stage, flights: Path, damage: str) -> None:
    path = stage(flights).path
    path.parent.chmod(0o755)
    path.chmod(0o644)
    if damage == "truncate":
        os.truncate(path, 100)
    elif damage == "overwrite":
        with path.open("r+b") as file:
            file.write(b"XXXX")
        os.utime(path, ns=(path.stat().st_atime_ns, flights.stat().st_mtime_ns))
    elif damage == "delete":
        path.unlink()
    else:
        (path.parent.parent / "manifest.json").write_text("{")
    staged = stage(flights, "r2")
    assert not staged.from_cache
    assert staged.path.read_bytes() == flights.read_bytes()


def test_changed_permissions_alone_are_no_damage(stage: Stage, flights: Path) -> None:
    stage(flights).path.chmod(0o400)
    assert stage(flights, "r2").from_cache


def test_a_source_that_changes_once_is_copied_again(cache: DataCache, flights: Path) -> None:
    """In place and with the same size: what was copied is half old, half new."""
    changes = iter([b"new head"])

    def progress(done: int, total: int | None) -> None:
        if done:
            for content in changes:
                with flights.open("r+b") as file:
                    file.write(content)

    staged = cache.stage(Dataset(uri=str(flights)), "r1", progress=progress)
    assert staged.path.read_bytes().startswith(b"new head")
    assert staged.path.read_bytes() == flights.read_bytes()
    assert leftovers(cache) == []


def test_a_source_that_keeps_changing_is_an_error(cache: DataCache, flights: Path) -> None:
    def progress(done: int, total: int | None) -> None:
        with flights.open("ab") as file:
            file.write(b"more")

    with pytest.raises(SourceChanged):
        cache.stage(Dataset(uri=str(flights)), "r1", progress=progress)
    assert leftovers(cache) == []


def test_a_source_deleted_in_mid_copy_is_missing(cache: DataCache, flights: Path) -> None:
    with pytest.raises(SourceMissing):
        cache.stage(
            Dataset(uri=str(flights)),
            "r1",
            progress=lambda done, total: flights.unlink(missing_ok=True),
        )
    assert leftovers(cache) == []


def test_cancelling_stops_in_mid_copy(cache: DataCache, flights: Path) -> None:
    """As a flow process is: by a signal whose handler raises."""
    seen: list[int] = []

    def progress(done: int, total: int | None) -> None:
        seen.append(done)
        if done:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cache.stage(Dataset(uri=str(flights)), "r1", progress=progress)
    assert seen == [0, 4 * MIB]
    assert leftovers(cache) == []


def test_unused_sets_give_way_and_used_ones_do_not(
    stage: Stage, cache: DataCache, tmp_path: Path, index: MemoryIndex
) -> None:
    for n in range(4):
        (tmp_path / f"set{n}").write_bytes(bytes([n]) * 40 * MIB)
    first = stage(tmp_path / "set0", "r0")
    second = stage(tmp_path / "set1", "r1")
    with pytest.raises(CacheFull) as full:
        stage(tmp_path / "set2", "r2")
    assert (full.value.needed_bytes, full.value.free_bytes) == (40 * MIB, 20 * MIB)
    cache.release("r1")
    stage(tmp_path / "set2", "r2")
    assert first.path.exists()
    assert not second.path.exists()
    assert len(index.list("n")) == 2


def test_a_set_larger_than_the_budget_evicts_nothing(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 101 * MIB)
    kept = stage(tmp_path / "small", "r0")
    with pytest.raises(CacheFull):
        stage(tmp_path / "large", "r1")
    assert kept.path.exists()


def test_ten_jobs_copy_one_set_once(cache: DataCache, index: MemoryIndex, flights: Path) -> None:
    staged: list[StagedDataset] = []

    def job(n: int) -> None:
        staged.append(
            cache.stage(
                Dataset(uri=str(flights)),
                f"r{n}",
                progress=lambda done, total: None,
            )
        )

    threads = [threading.Thread(target=job, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.from_cache for each in staged) == [False] + [True] * 9
    (only,) = index.list("n")
    assert sorted(only.run_ids) == sorted(f"r{n}" for n in range(10))


def test_sweeping_removes_what_nobody_records(
    stage: Stage, cache: DataCache, index: MemoryIndex, flights: Path
) -> None:
    staged = stage(flights)
    (cache._folders.root / "tmp" / ("a" * 64 + ".dead")).mkdir()
    assert cache.sweep() == 1
    assert staged.path.exists()
    cache.release("r1")
    index.remove("n", index.list("n")[0].key)
    assert cache.sweep() == 1
    assert not staged.path.exists()
    assert not any((cache._folders.root / "locks").iterdir())
    shutil.rmtree(cache._folders.root)
