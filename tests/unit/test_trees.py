"""Trees that Python's own walk and removal do not get through."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.home import strip_set_ids
from headway.trees import below, remove, stats_below

DEEP = 1500
"""Beyond Python's limit of recursion; with long names beyond the kernel's limit of a path, too."""


def nest(top: Path, name: str, depth: int = DEEP) -> None:
    """Folders *depth* deep below *top*, in the last one a file of 8 KiB."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    file = os.open("last", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, b"x" * 8192)
    os.close(file)
    os.close(here)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "top"
    made.mkdir()
    yield made
    remove(made)  # pytest's own removal would end at it


@pytest.mark.parametrize("name", ["d", "d" * 200, "-rf", "\udcff\n"])
def test_what_lies_deep_is_counted_and_goes(top: Path, name: str) -> None:
    nest(top, name)
    sizes = [stat.st_size for stat in stats_below(top)]
    assert len(sizes) == DEEP + 1
    assert sizes.count(8192) == 1
    remove(top)
    assert not top.exists()


def test_the_walk_holds_few_descriptors_and_lets_go_of_them(top: Path) -> None:
    nest(top, "d")
    before = open_files()
    walk = stats_below(top)
    for _ in range(DEEP):
        next(walk)
    assert open_files() <= before + 4
    walk.close()
    assert open_files() == before


def test_a_folder_that_is_moved_under_the_walk_leads_it_nowhere_else(
    top: Path, tmp_path: Path
) -> None:
    for name in ("a/b", "a/c", "z"):
        (top / name).mkdir(parents=True)
    for name in ("a/b/x", "a/c/x", "z/x", "x"):
        (top / name).write_text(name)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret").write_text("s" * 777)
    seen: list[int] = []
    for stat in stats_below(top):
        seen.append(stat.st_size)
        if stat.st_size == len("a/b/x") and (top / "a").exists():
            (top / "a").rename(tmp_path / "beside" / "a")
    assert 777 not in seen
    assert len("z/x") in seen


def test_no_link_is_followed(top: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("f")
    (top / "link").symlink_to(tmp_path / "kept")
    assert len(list(stats_below(top))) == 1
    remove(top / "link")
    assert not (top / "link").is_symlink()
    remove(top)
    assert (tmp_path / "kept" / "file").exists()


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove(tmp_path / "nothing")


def test_closed_folders_go_too(top: Path) -> None:
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed").chmod(0)
    remove(top)
    assert not top.exists()


def test_root_opens_no_folder_of_another_user(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it may put a link where `chmod` has just seen a folder."""
    told: list[str] = []

    def fails(tool: str, *_: object) -> subprocess.CompletedProcess[str]:
        told.append(tool)
        return subprocess.CompletedProcess([], 1, stderr="not empty")

    monkeypatch.setattr("headway.trees._told", fails)
    for uid, tools in ((1000, ["rm", "chmod", "rm"]), (0, ["rm"])):
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        with pytest.raises(OSError, match="not empty"):
            remove(top)
        assert told == tools
        told.clear()
    monkeypatch.undo()


def test_what_stays_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/proc/self"):
        remove(Path("/proc/self/fdinfo"))


def test_no_depth_keeps_the_power_of_a_file(top: Path) -> None:
    nest(top, "d")
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEEP):
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.chmod("last", 0o4755, dir_fd=here)
    assert strip_set_ids(top) == 1
    assert os.stat("last", dir_fd=here).st_mode & 0o7777 == 0o755
    os.close(here)


def test_what_comes_into_a_folder_under_the_walk_is_found(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.trees._AGAIN_CPU_S", 0.0)
    (top / "a" / "inner").mkdir(parents=True)
    found = []
    for _, name, _ in below(top):
        found.append(name)
        if name == "inner":
            (top / "late").mkdir()
            (top / "late" / "file").touch()
    assert sorted(found) == ["a", "file", "inner", "late"]
