"""Files are whole or not there, also after a loss of power."""

import os
import re
from pathlib import Path

import pytest

from headway.durable import give_name, replace_file
from headway.project import PACKAGE

IN_PLACE = re.compile(r"\.write_(?:text|bytes)\(|\.replace\((?:path|self\._\w+)\)")
MAY_WRITE_IN_PLACE = {
    "node/apart.py",  # what the kernel is told of its process
    "node/forkedprocess.py",  # the kernel's file for a process's name
    "cgroup_files.py",  # the kernel's files
    "cgroups.py",
    "runtime/process/shim.py",
    "runtime/process/passage.py",  # the kernel's settings
    "cli/estimate.py",  # where a person wants a document
    "bridges/calls.py",  # a folder that is sent and then removed
    "bridges/sent/headway_call.py",  # where nothing of headway is installed
    "bridges/submitit_plugin.py",  # submitit's own folder
    "run/shared_environment_entry.py",  # it runs where nothing of headway is installed
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, in order: contents of files and folders, and new names."""
    done: list[str] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def fsync(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def named(of: Path, to: Path) -> Path:
        done.append(f"name {to.name}")
        return (rename if of.is_dir() else replace)(of, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", named)
    monkeypatch.setattr(Path, "replace", named)
    return done


def test_the_content_is_on_the_disk_before_the_name_and_the_name_at_the_end(
    tmp_path: Path, steps: list[str]
) -> None:
    replace_file(tmp_path / "exit.json", "{}")
    part = f"exit.json.{os.getpid()}.part"
    assert steps == [f"sync {part}", "name exit.json", f"sync {tmp_path.name}"]
    assert (tmp_path / "exit.json").read_text() == "{}"
    assert (tmp_path / "exit.json").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["exit.json"]


def test_what_may_be_lost_waits_for_no_disk(tmp_path: Path, steps: list[str]) -> None:
    replace_file(tmp_path / "usage.json", b"{}", lasts=False)
    assert steps == ["name usage.json"]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path: Path, steps: list[str]) -> None:
    part = tmp_path / ".new-1"
    part.mkdir()
    give_name(part, tmp_path / "whole")
    assert steps == ["sync .new-1", "name whole", f"sync {tmp_path.name}"]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "exit.json"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_permissions_that_were_asked_for_whatever_the_umask_is(
    tmp_path: Path,
) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "script", "true", mode=0o755, lasts=False)
    finally:
        os.umask(before)
    assert (tmp_path / "script").stat().st_mode & 0o777 == 0o755


def test_nothing_in_headway_writes_files_in_another_way() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if IN_PLACE.search(path.read_text())
    }
    assert found - {"durable.py"} == MAY_WRITE_IN_PLACE
