"""What killed processes leave on a node goes; one thing that cannot be removed keeps no other."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.node.flowlock import hold_flow
from headway.node.prune import complete_removals
from headway.node.sweep import sweep
from headway.runtime import secretfiles
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState, ContainerStatus
from headway.runtime.process.programs import ProcessRuntime
from headway.settings import Settings
from headway.site import Site
from headway.staging.partial import Partial
from headway.this_node import join_site, owners
from tests.support.postgresql import with_ledger

LONG_AGO = 1_000_000_000.0
RUNS = [f"00000000-0000-4000-8000-00000000000{at}" for at in range(3)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    yield site
    site.ledger.close()


def unfinished(parent: Path, age_s: float = 100.0) -> Path:
    """A folder with a secret that whoever was filling it left *age_s* ago."""
    folder = parent / ".new-1234"
    folder.mkdir(parents=True)
    (folder / "env.json").write_text(json.dumps({"TOKEN": "secret"}))
    at = SystemClock().now().timestamp() - age_s
    os.utime(folder, (at, at))
    return folder


@pytest.mark.parametrize("where", ["containers", "secrets"])
def test_what_a_killed_process_was_filling_with_secrets_goes(site: Site, where: str) -> None:
    old = unfinished(site.settings.home / where)
    sweep(site, [], [])
    assert not old.exists()
    young = unfinished(site.settings.home / where, age_s=0.0)
    sweep(site, [], [])
    assert young.exists()  # somebody may be filling it


def test_a_removal_that_was_killed_is_completed(site: Site) -> None:
    for where in (site.settings.home / "containers", site.settings.runs_dir):
        (where / ".gone-1").mkdir(parents=True)
        (where / ".gone-1/checkpoint").write_bytes(b"0" * 100)
    sweep(site, [], [])
    complete_removals(site)
    assert not list(site.settings.home.glob("*/.gone-*"))


class Stubborn(ProcessRuntime):
    """A runtime of three containers, of which the first cannot be stopped or asked."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, ContainerPolicy(), SystemClock())
        self.removed: list[str] = []

    def containers(self) -> list[ContainerStatus]:
        return [
            ContainerStatus(f"headway-{run}-1", run, 1, ContainerState.RUNNING, pids=(at + 10,))
            for at, run in enumerate(RUNS)
        ]

    def stop(self, name: str, grace_s: float) -> None:
        if RUNS[0] in name:
            raise RuntimeFailure("processes of it cannot be killed")

    def remove(self, name: str) -> None:
        self.removed.append(name)

    def usage(self, name: str):  # type: ignore[no-untyped-def]
        if RUNS[0] in name:
            raise RuntimeFailure("it cannot be asked")
        return super().usage(name)


def test_one_container_that_cannot_be_removed_keeps_nothing_else(site: Site) -> None:
    runtime = Stubborn(site.settings.home)
    vars(site)["runtime"] = runtime
    kept = site.settings.secrets_dir / "headway-gone-1"
    secretfiles.write(kept, {"TOKEN": "secret"}, None)
    sweep(site, runtime.containers(), runtime.containers())
    assert runtime.removed == [f"headway-{run}-1" for run in RUNS[1:]]
    assert not kept.exists()


def test_a_copy_of_code_goes_with_its_container(site: Site) -> None:
    runtime = Stubborn(site.settings.home)
    vars(site)["runtime"] = runtime
    work, gone = site.settings.work_dir, "00000000-0000-4000-8000-00000000000a"
    taken_up = "00000000-0000-4000-8000-00000000000b"
    kept = [f"headway-{RUNS[0]}-1", f"headway-{taken_up}-1", f".new-headway-{taken_up}-2.c0ffee"]
    left = [f"headway-{gone}-1", f"headway-{RUNS[0]}-2", f".new-headway-{gone}-2.c0ffee"]
    kept.append(f"headway-{gone}-3")
    (site.settings.slurm_dir / f"{gone}-3").mkdir(parents=True)  # its job is in its grace
    for name in (*kept, *left):
        (work / name / "src").mkdir(parents=True)
    with hold_flow(site.settings.state_dir, taken_up):
        sweep(site, runtime.containers(), [])
    assert {each.name for each in work.iterdir()} == set(kept)


def test_what_runs_hold_is_known_though_one_cannot_be_asked(site: Site) -> None:
    vars(site)["runtime"] = Stubborn(site.settings.home)
    run_of_pid, _ = owners(site)
    assert run_of_pid == {10: RUNS[0], 11: RUNS[1], 12: RUNS[2]}


def test_a_partial_copy_that_cannot_be_removed_keeps_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp = site.settings.home / "cache/tmp"
    assert site.cache.sweep() == 0  # makes the folders
    stuck, dead = (Partial.create(tmp, key).folder for key in ("a" * 64, "b" * 64))
    remove = Partial.remove

    def refuses(partial: Partial) -> None:
        if partial.folder == stuck:
            raise PermissionError(1, "Operation not permitted")
        remove(partial)

    monkeypatch.setattr(Partial, "remove", refuses)
    assert site.cache.sweep() == 1
    assert (stuck.exists(), dead.exists()) == (True, False)


def test_the_index_forgets_a_set_whose_fetch_was_killed_before_its_last_step(site: Site) -> None:
    """It is recorded first, so that its bytes count; its folder gets its name after that."""
    site.cache.sweep()
    for key in ("a" * 64, "b" * 64):
        site.ledger.staged.record("here", key, "/data", 10**12, "0" * 64)
    site.ledger.staged.acquire("here", "b" * 64, RUNS[0])
    site.cache.sweep()
    assert [each.key for each in site.ledger.staged.list("here")] == ["b" * 64]
