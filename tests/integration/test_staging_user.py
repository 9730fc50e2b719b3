"""Data sets are read as the user whose job names them, and are that user's alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.model.job_parts import Dataset
from headway.staging.cache import DataCache, StagedDataset
from headway.staging.errors import CacheFull, SourceChanged, SourceMissing
from headway.staging.reader import UserReader
from headway.staging.rules import SourceRules
from headway.staging.source import inspect
from headway.units import MIB
from tests.conftest import NOBODY
from tests.ports.staging import MemoryIndex

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Stage = Callable[..., StagedDataset]
OTHER = (54321, 54321)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    index = MemoryIndex()

    def run(
        uri: object, user: tuple[int, int] = NOBODY, during: Callable[[], object] = lambda: None
    ) -> StagedDataset:
        rules = SourceRules(closed=(str(tmp_path / "cache"), str(tmp_path / "home")))
        reader = UserReader(user, rules)
        cache = DataCache(tmp_path / "cache", 100 * MIB, index, node="n", reader=reader)
        dataset = Dataset(uri=str(uri))
        return cache.stage(dataset, "r", progress=lambda done, total: during() and None)

    return run


def reads(path: Path, user: tuple[int, int]) -> bool:
    """Can *user* read the file, or list the directory?"""
    words = ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups"]
    done = subprocess.run(
        [*words, "/bin/sh", "-c", '[ -d "$1" ] && ls "$1" || cat "$1"', "sh", str(path)],
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0


def test_the_copy_is_that_users_alone(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "set" / "deep").mkdir(parents=True)
    (tmp_path / "set" / "deep" / "a.csv").write_text("a")
    staged = stage(tmp_path / "set")
    file = staged.path / "deep" / "a.csv"
    for path, mode in ((staged.path, 0o500), (staged.path / "deep", 0o500), (file, 0o400)):
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (*NOBODY, mode)
    assert reads(file, NOBODY)
    for path in (file, staged.path, staged.path.parent, staged.path.parents[1]):
        assert not reads(path, OTHER)
    assert not reads(staged.path.parents[1], NOBODY)  # not even the names of other sets
    assert not reads(staged.path.parent / "manifest.json", NOBODY)


def test_two_jobs_of_a_user_share_a_set_and_those_of_two_do_not(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "set.csv").write_text("a")
    first, second = stage(tmp_path / "set.csv"), stage(tmp_path / "set.csv")
    assert second.from_cache
    assert second.path == first.path
    assert not stage(tmp_path / "set.csv", OTHER).from_cache


@pytest.mark.parametrize("kept_by", ["another user", "root"])
@pytest.mark.parametrize("as_directory", [False, True])
def test_what_the_user_may_not_read_is_not_staged(
    stage: Stage, tmp_path: Path, kept_by: str, as_directory: bool
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "open").write_text("x")
    (folder / "key").write_text("secret")
    (folder / "key").chmod(0o600)
    if kept_by == "another user":
        os.chown(folder / "key", *OTHER)
    with pytest.raises(SourceMissing, match="Permission denied"):
        stage(folder if as_directory else folder / "key")
    assert list((tmp_path / "cache" / "sets").iterdir()) == []


def test_a_set_in_the_cache_is_not_given_to_who_may_no_longer_read_it(
    stage: Stage, tmp_path: Path
) -> None:
    data = tmp_path / "set.csv"
    data.write_text("a")
    stage(data)
    data.chmod(0o600)
    os.utime(data, ns=(0, data.stat().st_mtime_ns))
    with pytest.raises(SourceMissing, match="Permission denied"):
        stage(data)


@pytest.mark.parametrize("which", ["/etc/shadow", "/etc/passwd", "/root", "home/ledger.db", "link"])
def test_what_belongs_to_the_system_or_to_headway_is_not_staged(
    stage: Stage, tmp_path: Path, which: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "ledger.db").write_text("all of it")
    (tmp_path / "link").symlink_to("home/ledger.db")
    with pytest.raises(SourceMissing):
        stage(tmp_path / which)


def test_a_directory_that_becomes_a_link_in_mid_copy_is_not_followed(
    stage: Stage, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "x").write_text("0" * 9)
    (tmp_path / "home" / "b").mkdir(parents=True)

    def swap() -> None:
        """By the time that `b/x` is opened, `b` leads into headway's home."""
        if not (tmp_path / "set" / "b").is_symlink():
            (tmp_path / "set" / "b").rename(tmp_path / "moved")
            os.link(tmp_path / "moved" / "x", tmp_path / "home" / "b" / "x")  # the very inode
            (tmp_path / "set" / "b").symlink_to(tmp_path / "home" / "b")

    with pytest.raises((SourceMissing, SourceChanged)):
        stage(tmp_path / "set", during=swap)
    assert list((tmp_path / "cache" / "sets").iterdir()) == []


def test_what_is_opened_is_what_was_judged(tmp_path: Path) -> None:
    """The same within one process, step by step."""
    folder, home = tmp_path / "set", tmp_path / "home"
    folder.mkdir()
    (folder / "x").write_text("y")
    source = inspect(str(folder), SourceRules(closed=(str(home),)))
    folder.rename(home)
    folder.symlink_to(home)
    with pytest.raises(SourceChanged, match="moved"):
        source.open(source.files[0], SourceRules(closed=(str(home),)))


def test_what_reads_has_no_way_back_and_no_secret_of_the_site() -> None:
    code = (
        "import os; from headway.staging.child import become; become((65534, 65534))\n"
        "print(os.getresuid(), os.getresgid(), os.getgroups())\n"
        "print([line for line in open('/proc/self/status') if 'NoNewPrivs' in line])\n"
        "try: os.setuid(0)\nexcept PermissionError: print('stays')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "(65534, 65534, 65534) (65534, 65534, 65534) []" in done
    assert "NoNewPrivs:\\t1" in done
    assert "stays" in done


def test_runs_of_one_user_leave_room_for_those_of_others(tmp_path: Path) -> None:
    """Also by sets that lay there unused, and by such as are fetched meanwhile."""
    index = MemoryIndex()
    for name in ("a", "b", "c", "other"):
        (tmp_path / name).write_bytes(name.encode() * 30 * MIB)

    def stage(name: str, run_id: str, user: tuple[int, int] = NOBODY) -> DataCache:
        reader = UserReader(user, SourceRules(closed=(str(tmp_path / "cache"),)))
        cache = DataCache(
            tmp_path / "cache", 100 * MIB, index, node="n", reader=reader, share_bytes=75 * MIB
        )

        def meanwhile(done: int, total: int | None) -> None:
            if name == "b" and 0 < done < 30 * MIB:
                with pytest.raises(CacheFull, match="your team"):
                    stage("c", "while-another-is-fetched")

        cache.stage(Dataset(uri=str(tmp_path / name)), run_id, progress=meanwhile)
        return cache

    for name in ("a", "c"):
        stage(name, name).release(name)
    stage("a", "1")
    stage("b", "2")
    with pytest.raises(CacheFull) as full:
        stage("c", "3")
    assert (full.value.passes, full.value.free_bytes) == (True, 15 * MIB)
    stage("a", "4")  # what they use already takes nothing more
    (tmp_path / "other").write_bytes(b"o" * 40 * MIB)
    stage("other", "5", OTHER).release("5")
    stage("a", "1").release("1")
