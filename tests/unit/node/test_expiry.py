"""Which environments a node lets go of."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.node.expiry import tidy_environments
from headway.run.environment import LOCK, SEALED, lock_of
from headway.run.environment_pruning import KEEP_S, prune_environments
from tests.ports.clock import FakeClock

GIB = 1 << 30


@pytest.fixture
def site(tmp_path: Path) -> Any:
    settings = SimpleNamespace(environments_dir=tmp_path / "environments")
    rules = SimpleNamespace(keep_days=None)
    policy = SimpleNamespace(team=lambda _: rules)
    running: list[Any] = []
    return SimpleNamespace(
        settings=settings, policy_settings=policy, clock=FakeClock(), rules=rules,
        running=running, runtime=SimpleNamespace(containers=lambda: running),
    )  # fmt: skip


def environment(site: Any, name: str, unused_s: float, size_bytes: int = GIB) -> Path:
    folder: Path = site.settings.environments_dir / "vision" / name
    (folder / "maker").mkdir(parents=True)
    (folder / LOCK).touch()
    (folder / SEALED).write_text(json.dumps({"made": "maker", "size_bytes": size_bytes}))
    (folder / "used-gone").touch()
    at_s = site.clock.now().timestamp() - unused_s
    for each in (folder / "used-gone", folder):
        os.utime(each, (at_s, at_s))
    return folder


def test_what_was_unused_for_long_goes(site: Any) -> None:
    old, new = environment(site, "old", KEEP_S + 60), environment(site, "new", KEEP_S - 60)
    assert tidy_environments(site) == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert not (new / "used-gone").exists()
    site.rules.keep_days = 1.0
    assert tidy_environments(site) == 1
    assert list(new.parent.iterdir()) == []


def test_of_too_much_the_longest_unused_goes_first(site: Any) -> None:
    old, new = environment(site, "old", 7200, 3 * GIB), environment(site, "new", 3600, 3 * GIB)
    assert prune_environments(site, "vision", 5 * GIB) == 1
    assert (old.exists(), new.exists()) == (False, True)


def test_one_that_a_container_has_or_that_is_being_made_stays(site: Any) -> None:
    old = environment(site, "old", 10 * KEEP_S)
    lock = lock_of(old)
    assert lock is not None
    assert tidy_environments(site) == 0
    os.close(lock)
    site.running.append(SimpleNamespace(name="gone"))
    assert tidy_environments(site) == 0
    site.running.clear()
    just_now = old / "used-just-now"  # its container is about to be created
    just_now.touch()
    os.utime(just_now, (site.clock.now().timestamp(),) * 2)
    os.utime(old, (0, 0))
    assert tidy_environments(site) == 0
    os.utime(just_now, (0, 0))
    os.utime(old, (0, 0))
    assert tidy_environments(site) == 1


def test_what_a_broken_off_making_left_goes_and_what_is_sealed_stays(site: Any) -> None:
    kept = environment(site, "kept", 3600)
    for name in ("making-dead", "given-dead", "dead"):
        (kept / name).mkdir()
        os.utime(kept / name, (0, 0))
    assert tidy_environments(site) == 0
    assert {each.name for each in kept.iterdir()} == {LOCK, SEALED, "maker"}


def test_notes_of_containers_that_are_gone_do_not_gather_in_one_that_is_used(site: Any) -> None:
    kept = environment(site, "kept", 3600)
    (kept / "used-lives").touch()
    (kept / "damaged").mkdir()  # what made it is gone, and somebody may have it still
    for name in ("used-lives", "damaged"):
        os.utime(kept / name, (0, 0))
    site.running.append(SimpleNamespace(name="lives"))
    assert tidy_environments(site) == 0
    left = {each.name for each in kept.iterdir()}
    assert left == {LOCK, SEALED, "maker", "used-lives", "damaged"}


def test_where_there_are_none_nothing_is_done(site: Any) -> None:
    assert tidy_environments(site) == 0


def test_a_team_whose_folder_cannot_be_read_keeps_no_other_from_being_tidied(site: Any) -> None:
    old = environment(site, "old", 10 * KEEP_S)
    for name in ("a-file", "zz-file"):  # whichever is read first
        (site.settings.environments_dir / name).touch()
    assert tidy_environments(site) == 1
    assert not old.exists()
