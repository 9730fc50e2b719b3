"""Where a run finds the environment of its requirements, and who may touch what of it."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.run.environment import LOCK, environment_of
from headway.run.here import NodeAttempt

TEAM, OTHER = 70001, 70002


@pytest.fixture
def attempt(tmp_path: Path) -> Any:
    job = SimpleNamespace(image="python:3.11", requirements="requirements.txt", code="")
    site = SimpleNamespace(
        settings=SimpleNamespace(environments_dir=tmp_path / "environments"),
        runtime=SimpleNamespace(path_in_container=lambda mount: mount.source),
    )
    record = SimpleNamespace(team="vision")
    found = SimpleNamespace(job=job, site=site, record=record, user=f"{TEAM}:{TEAM}")
    found.have_own = lambda folder: NodeAttempt.have_own(found, folder)  # type: ignore[arg-type]
    return found


def test_nobody_but_the_program_holds_the_lock_of_its_environment(
    attempt: Any, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("small==1.0\n")
    place = environment_of(attempt, tmp_path).mounts[0].source
    lock = place / LOCK
    lock.chmod(0o644)  # as an earlier version left it
    assert environment_of(attempt, tmp_path).mounts[0].source == place
    found = lock.stat()
    owner = TEAM if os.geteuid() == 0 else os.geteuid()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (owner, 0o600)
    if os.geteuid() != 0:
        return
    # As other processes of this machine see it, which may pass the folders above.
    for each in tmp_path.parents[:-1]:
        each.chmod(each.stat().st_mode | stat.S_IXOTH)
    tmp_path.chmod(0o711)
    assert _opened_by(TEAM, lock)
    assert not _opened_by(OTHER, lock)


def _opened_by(uid: int, path: Path) -> bool:
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
