"""Which environments a node lets go of."""

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.node.environment_pruning import KEEP_S, tidy_environments
from headway.testing.clock import FakeClock


@pytest.fixture
def site(tmp_path: Path) -> Any:
    settings = SimpleNamespace(environments_dir=tmp_path / "environments")
    rules = SimpleNamespace(keep_days=None)
    policy = SimpleNamespace(team=lambda _: rules)
    return SimpleNamespace(
        settings=settings, policy_settings=policy, clock=FakeClock(), rules=rules
    )


def environment(site: Any, name: str, unused_s: float) -> Path:
    folder: Path = site.settings.environments_dir / "vision" / name
    (folder / "made").mkdir(parents=True)
    (folder / "lock").touch()
    (folder.parent / "cache").mkdir(exist_ok=True)
    at_s = site.clock.now().timestamp() - unused_s
    os.utime(folder, (at_s, at_s))
    return folder


def test_what_was_unused_for_long_goes_and_the_cache_with_the_last(site: Any) -> None:
    old, new = environment(site, "old", KEEP_S + 60), environment(site, "new", KEEP_S - 60)
    assert tidy_environments(site) == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert (new.parent / "cache").exists()
    site.rules.keep_days = 1.0
    assert tidy_environments(site) == 1
    assert list(new.parent.iterdir()) == []


def test_one_that_a_program_is_in_stays(site: Any) -> None:
    old = environment(site, "old", 10 * KEEP_S)
    with (old / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert tidy_environments(site) == 0
    assert tidy_environments(site) == 1


def test_where_there_are_none_nothing_is_done(site: Any) -> None:
    assert tidy_environments(site) == 0


def test_a_team_whose_folder_cannot_be_read_keeps_no_other_from_being_tidied(site: Any) -> None:
    old = environment(site, "old", 10 * KEEP_S)
    for name in ("a-file", "zz-file"):  # whichever is read first
        (site.settings.environments_dir / name).touch()
    assert tidy_environments(site) == 1
    assert not old.exists()
