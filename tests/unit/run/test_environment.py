"""Where a run finds the environment of its requirements, and who may touch what of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.code.folder import pack
from headway.code.unpack import ChunkCache
from headway.model.outside import Outside
from headway.run import environment
from headway.run.environment import Environment, environment_of, lock_of
from headway.runtime.errors import RuntimeFailure
from headway.trees import remove
from tests.ports.clock import FakeClock
from tests.support.small_wheel import small_wheel

PROGRAM, MAKER = 70001, 70999


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    project = tmp_path / "project"
    project.mkdir()
    small_wheel(project, "small")
    (project / "requirements.txt").write_text("--no-index\n--find-links .\nsmall\n")
    job = SimpleNamespace(
        image="python:3.11", requirements="requirements.txt", code="c1", env={}, team="vision",
        resources=SimpleNamespace(shm=1, disk=0),
    )  # fmt: skip
    home, operators = tmp_path / "home", dict[str, str]()
    site = SimpleNamespace(
        settings=SimpleNamespace(environments_dir=home / "environments", log_limit_bytes=1),
        runtime=SimpleNamespace(
            path_in_container=lambda mount: mount.source, ensure_image=lambda image: f"{image}@1"
        ),
        clock=FakeClock(),
        policy_for=lambda _: SimpleNamespace(environment=operators, outside=Outside()),
    )  # fmt: skip
    root = os.geteuid() == 0

    def parts(*_: object) -> Any:
        folder = pack(project)
        chunks = folder.chunks(set(folder.manifest.chunks))
        content = dict(zip(folder.manifest.chunks, chunks, strict=True))
        return folder.manifest, ChunkCache(home / "code", "c1", lambda asked: content)

    monkeypatch.setattr(environment, "code_parts", parts)
    yield SimpleNamespace(
        job=job, site=site, container="headway-r-1",
        run_id="r", number=1, log=home / "log", made=lambda _: None, network=lambda: None,
        project=project,
        user=f"{PROGRAM}:{PROGRAM}" if root else "", maker=f"{MAKER}:{PROGRAM}" if root else "",
    )  # fmt: skip
    remove(home / "environments")


LEASE: Any = SimpleNamespace(host_memory_bytes=1 << 30, cpus=1.0)


def made(attempt: Any) -> Environment:
    found = environment_of(attempt)
    assert found is not None
    with found.held():
        spec = found.maker(LEASE)
    assert found.is_being_made
    assert not found.is_sealed()
    assert (spec.user, spec.name) == (attempt.maker, attempt.container)
    assert {each.source.name for each in spec.mounts if not each.read_only} == {attempt.container}
    (found.made / "environment").mkdir()
    (found.made / "environment" / "module.py").write_text("fine")
    (found.made / "environment" / "link").symlink_to("/etc")
    return found


def test_what_is_made_is_sealed_and_what_was_changed_since_is_not_used(attempt: Any) -> None:
    found = made(attempt)
    found.seal()
    assert not found.is_being_made
    assert found.is_sealed()
    _, mount = found.taken()
    assert mount.read_only
    module = mount.source / "environment" / "module.py"
    assert not stat.S_IMODE(module.stat().st_mode) & 0o222
    if os.geteuid() == 0:
        assert (module.stat().st_uid, module.stat().st_gid) == (0, PROGRAM)
        assert not module.stat().st_mode & 0o007
    module.chmod(0o640)
    module.write_text("evil")
    os.utime(module, ns=(0, 0))
    assert not found.is_sealed()
    with pytest.raises(RuntimeFailure, match="removed or changed since it was made"):
        found.taken()


@pytest.mark.parametrize("change", ["new", "moved", "gone"])
def test_any_change_of_what_lies_there_is_seen(attempt: Any, change: str) -> None:
    found = made(attempt)
    found.seal()
    inside = found.made / "environment"
    inside.chmod(0o700)
    before = inside.stat()
    if change == "new":
        (inside / "evil.pth").write_text("import evil")
    elif change == "moved":
        (inside / "module.py").rename(inside / "json.py")
    else:
        (inside / "module.py").unlink()
    inside.chmod(0o550)
    os.utime(inside, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not found.is_sealed()


def test_a_maker_that_broke_off_leaves_nothing_that_is_used(attempt: Any) -> None:
    found = made(attempt)
    assert not found.is_sealed()
    again = made(attempt)
    assert again.folder == found.folder
    again.seal()
    assert again.is_sealed()


def test_whatever_it_is_made_from_tells_it_from_others(attempt: Any) -> None:
    def folder() -> str:
        found = environment_of(attempt)
        assert found is not None
        return found.folder.name

    names = [folder()]
    (attempt.project / "train.py").write_text("no part of it")
    assert folder() == names[0]
    small_wheel(attempt.project, "small", more={"other.py": ""})  # of the same name
    names.append(folder())
    attempt.job.env = {"UV_INDEX_URL": "https://example.org/simple"}
    names.append(folder())
    attempt.site.runtime.ensure_image = lambda image: f"{image}@2"  # the tag was moved
    names.append(folder())
    attempt.site.policy_for("vision").environment["UV_DEFAULT_INDEX"] = "https://example.com"
    names.append(folder())
    attempt.user = "1:1"
    names.append(folder())
    assert len(set(names)) == len(names)


def test_one_process_at_a_time_makes_takes_or_removes_it(attempt: Any) -> None:
    found = environment_of(attempt)
    assert found is not None
    with found.held():
        assert lock_of(found.folder) is None
    lock = lock_of(found.folder)
    assert lock is not None
    attempt.site.clock.sleep = lambda _: os.close(lock)
    said: list[bytes] = []
    with found.held(lambda line, _: said.append(line)):
        assert said == [b"headway: another run makes the environment; waiting for it\n"]


def test_without_requirements_there_is_none(attempt: Any) -> None:
    attempt.job.requirements = ""
    assert environment_of(attempt) is None
