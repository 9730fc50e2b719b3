"""Memory that is lent goes back in time: the borrower leaves, the owner is never killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cgroups import Cgroups
from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.model.run import ExitKind
from headway.node.guard import Guard
from headway.policy.conclude import gave_back
from headway.run.guard_notes import read_notes
from headway.run.here import container_name
from headway.runtime import run_groups
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.port import ContainerState, Runtime
from headway.settings import Settings
from headway.testing.telemetry import FakeHost
from headway.this_node import join_site
from headway.units import GIB, MIB
from tests.integration.test_guard import NAME, Bench, GuardedSite, enqueue, spec
from tests.support.postgresql import with_ledger
from tests.support.site import wait_for

OWNER = "00000000-0000-4000-8000-000000000003"
LENT_TO = "00000000-0000-4000-8000-000000000004"
"""Of a container on the real engine, which others' tests use as well."""
HELD = "dd if=/dev/zero of=/dev/shm/held bs=1M count={} 2>/dev/null; echo up; "


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One container, which borrows, on a node of 160 GiB."""
    made = Bench(tmp_path)
    made.engine.remove(NAME)
    made.engine.create(replace(spec(made.site), lent=True))
    made.engine.start(NAME)
    made.site.host = FakeHost(memory_bytes=160 * GIB)
    return made


def test_who_has_borrowed_leaves_with_its_grace_time_and_why_is_noted(bench: Bench) -> None:
    bench.guard.lookout.look()
    assert bench.guard.take_back_memory() == []
    bench.site.host.show(used_bytes=154 * GIB)  # type: ignore[attr-defined]
    (told,) = bench.guard.take_back_memory()
    assert (told.name, told.grace_s) == (NAME, 30.0)
    bench.until_dead()
    assert "6.0 GiB were left" in read_notes(bench.site.settings.state_dir).gave_back[NAME]
    # The note stays as long as there is the container, for the flow that settles it.
    bench.guard.lookout.look()
    assert NAME in read_notes(bench.site.settings.state_dir).gave_back
    bench.engine.remove(NAME)
    bench.guard.lookout.look()
    assert not read_notes(bench.site.settings.state_dir).gave_back


def test_neither_ledger_nor_anybody_else_is_asked(bench: Bench) -> None:
    bench.guard.lookout.look()
    bench.site.away = True
    bench.site.host.show(used_bytes=158 * GIB)  # type: ignore[attr-defined]
    (told,) = bench.guard.take_back_memory()
    assert told.grace_s == 0.0
    bench.until_dead()


def test_who_has_memory_of_his_own_is_never_told_to_leave(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.site.host = FakeHost(memory_bytes=160 * GIB, used_bytes=160 * GIB)
    bench.guard.lookout.look()
    assert bench.guard.take_back_memory() == []
    assert bench.alive()


def test_the_run_goes_back_to_the_queue_and_no_retry_is_spent() -> None:
    exit_ = gave_back(137, "its host memory is promised to others, who need it now")
    assert exit_.kind is ExitKind.PREEMPTED
    assert "goes on from its checkpoint" in exit_.message


@pytest.mark.docker
def test_a_borrower_is_gone_before_an_owner_is_killed(
    tmp_path: Path, busybox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node of 400 MiB, which the kernel holds to that; the owner grows into its promise."""
    with small_node(monkeypatch) as (above, capacity_bytes):
        site = GuardedSite(
            Settings(home=with_ledger(tmp_path), runtime="docker", node="here", lease_ttl_s=900.0),
            SystemClock(),
        )
        policy = ContainerPolicy(mount_roots=(tmp_path,))
        site.engine = engine = DockerRuntime(site.site_id, policy, SystemClock())
        site.host = host = FakeHost()
        join_site(site)
        host.show(memory_bytes=capacity_bytes)
        guard = Guard(site)
        grows = (
            "i=0; while [ $i -lt 300 ]; do dd if=/dev/zero of=/dev/shm/$i bs=1M count=1; "
            "sleep 0.02; i=$((i+1)); done 2>/dev/null; echo grown; exec sleep 60"
        )
        for run_id, words, lent in (
            (LENT_TO, HELD.format(200) + "exec sleep 60", True),
            (OWNER, grows, False),
        ):
            enqueue(site, run_id)
            asked = replace(
                spec(site, run_id), image=busybox_image, command=("sh", "-c", words), lent=lent,
                host_memory_bytes=350 * MIB, shm_bytes=340 * MIB,
            )  # fmt: skip
            engine.create(asked)
            engine.start(asked.name)
        owner, borrower = container_name(OWNER, 1), container_name(LENT_TO, 1)
        guard.lookout.look()

        def log_of(name: str) -> bytes:
            return engine.read_log(name, 0).data

        def looked() -> bool:
            seen = Cgroups().read(above)
            assert seen is not None
            host.show(used_bytes=(seen.used_bytes or 0) - seen.droppable_bytes)
            guard.take_back_memory()
            return b"grown" in log_of(owner) or not _runs(engine, owner)

        try:
            wait_for(looked, lambda: f"{log_of(owner)!r} {log_of(borrower)!r}")
            assert _runs(engine, owner)
            assert b"grown" in log_of(owner)
            gone = engine.inspect(borrower)
            assert gone is not None
            assert gone.state is ContainerState.EXITED
            assert not gone.oom_killed  # it was the guard, not the kernel
            assert "MiB were left" in read_notes(site.settings.state_dir).gave_back[borrower]
        finally:
            for name in (owner, borrower):
                engine.remove(name)


def _runs(engine: Runtime, name: str) -> bool:
    status = engine.inspect(name)
    return status is not None and status.state is ContainerState.RUNNING


@contextmanager
def small_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """All containers of this test together get 400 MiB from the kernel; their group, and that."""
    above, capacity_bytes = f"/headway-lent-{os.getpid()}", 400 * MIB
    monkeypatch.setattr(run_groups, "ABOVE", above)
    root = Path("/sys/fs/cgroup")
    first = (root / "memory").is_dir()
    folder = (root / "memory" if first else root) / above.lstrip("/")
    folder.mkdir()
    (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(capacity_bytes))
    try:
        yield above, capacity_bytes
    finally:
        Cgroups().remove(above)
