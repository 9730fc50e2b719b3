"""What the environment of an engine's jobs is made from, and what its first job does there."""

import errno
import fcntl
import os
import platform
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.code.folder import pack
from headway.code.unpack import ChunkCache
from headway.errors import CacheUnusable
from headway.model.outside import Outside
from headway.run import engine_environment, environment, shared_environment_entry
from headway.run.engine_environment import words_before
from tests.support.small_wheel import small_wheel


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    small_wheel(project, "small")
    (project / "requirements.txt").write_text("--no-index\n--find-links .\nsmall\n")

    def parts(*_: object) -> Any:
        folder = pack(project)
        chunks = folder.chunks(set(folder.manifest.chunks))
        content = dict(zip(folder.manifest.chunks, chunks, strict=True))
        return folder.manifest, ChunkCache(home / "code", "c1", lambda asked: content)

    monkeypatch.setattr(environment, "code_parts", parts)
    policy = SimpleNamespace(environment=dict[str, str](), outside=Outside())
    settings = SimpleNamespace(engines_dir=home / "engines", environments_dir=home / "environments")
    return SimpleNamespace(
        job=SimpleNamespace(requirements="requirements.txt", code="c1", env={}, team="vision"),
        site=SimpleNamespace(settings=settings, policy_for=lambda _: policy),
    )


def test_all_of_it_is_on_the_disk_before_it_has_its_name(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty start.py ends well, and every later job of these requirements would."""
    synced, before = set[tuple[int, int]](), set[tuple[int, int]]()
    fsync, rename = os.fsync, Path.rename

    def seen(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.add((found.st_ino, found.st_size if stat.S_ISREG(found.st_mode) else 0))
        fsync(descriptor)

    def renamed(part: Path, path: Path) -> Path:
        if path.parent.name == "vision":
            before.update(synced)
            synced.clear()
        return rename(part, path)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(Path, "rename", renamed)
    folder = Path(words_before(attempt, None)[3])
    names = {"start.py", "entry.py", "variables.json", "given", "small-1.0-py3-none-any.whl"}
    assert names < {each.name for each in folder.rglob("*")}
    for each in (folder, *folder.rglob("*")):
        found = each.stat()
        assert (found.st_ino, found.st_size if each.is_file() else 0) in before, each
    assert (folder.parent.stat().st_ino, 0) in synced


@pytest.mark.parametrize("step", ["unpack", "replace_file", "give_name_to_all"])
def test_what_could_not_be_made_leaves_nothing(
    attempt: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(engine_environment, step, full)
        with pytest.raises((OSError, CacheUnusable), match="No space left"):
            words_before(attempt, None)
    place = attempt.site.settings.engines_dir / "environments/vision"
    assert list(place.iterdir()) == []
    assert Path(words_before(attempt, None)[2]).exists()


def test_who_was_slower_takes_what_the_other_has_made(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slower(_: Path, folder: Path) -> None:
        (folder / "made").mkdir(parents=True)
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(engine_environment, "give_name_to_all", slower)
    folder = Path(words_before(attempt, None)[3])
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Runs the first job's start, by a maker that does nothing; its folder for this Python."""
    (tmp_path / "variables.json").write_text("{}")
    made = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: made)
    monkeypatch.setattr(os, "execv", lambda *_: None)

    def begin() -> Path:
        shared_environment_entry.main(tmp_path, "requirements.txt", "uv", "true")
        return next(each for each in tmp_path.iterdir() if each.is_dir())

    return begin


def test_another_c_library_has_another_environment(
    given: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17"))
    assert given().name.endswith("-glibc2.17")


def test_without_locks_it_says_what_to_do(
    given: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(SystemExit, match=r"Function not implemented.*mounted there with -o flock"):
        given()


def test_what_cannot_be_removed_of_a_killed_job_stops_nobody(
    given: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = given()
    (place / "made").unlink()
    (place / "1.1").mkdir()

    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")  # a file server keeps what is open

    monkeypatch.setattr(os, "rmdir", busy)
    monkeypatch.setenv("HEADWAY_JOB", "2")
    assert (given() / "made").read_text() == f"2.{os.getpid()}"
