"""A node is frozen, removed and woken: how often was a run alive on two nodes?

    python benchmarks/faults/freeze_and_wake.py [--times 50] [--ttl 4]

Two nodes on one PostgreSQL, each with its guard; a process follows each attempt as a flow does.
By turns the follower alone is frozen, while the guard sees the container alive, and the whole
node: follower, guard and program. Each program says every 20 ms that it is alive. Prefect takes
no part: what it is told, `kills.py` looks at.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from multiprocessing import get_context
from multiprocessing.process import BaseProcess as Process
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pydantic import SecretStr  # noqa: E402 - from here on from the project's root

from headway.admin.node_removal import remove_node  # noqa: E402
from headway.clock import SystemClock  # noqa: E402
from headway.errors import LeaseLost  # noqa: E402
from headway.model.job import TrainingJob  # noqa: E402
from headway.model.job_parts import Resources  # noqa: E402
from headway.model.lease import Demand, Lease  # noqa: E402
from headway.model.run import Exit, ExitKind, Measurement  # noqa: E402
from headway.run.attempt import Attempt  # noqa: E402
from headway.run.here import log_path  # noqa: E402
from headway.runtime.errors import ContainerMissing  # noqa: E402
from headway.runtime.port import ContainerState  # noqa: E402
from headway.scheduler import snapshot  # noqa: E402
from headway.settings import Settings  # noqa: E402
from headway.site import Site  # noqa: E402
from headway.this_node import join_site  # noqa: E402
from headway.units import MIB  # noqa: E402
from tests.support import postgresql  # noqa: E402
from tests.support.leading import admit_in_term  # noqa: E402
from tests.support.site import wait_for  # noqa: E402

PROGRAM = "import time\nwhile True:\n    print(time.time(), flush=True)\n    time.sleep(0.02)\n"
JOB = TrainingJob(
    name="alive",
    image="image:1",
    command=["python", "-c", PROGRAM],
    stop_grace="1s",
    resources=Resources(host_memory="128MiB", cpus=0.1),
)


class Node:
    """One node: its home, its guard, and who follows its attempt."""

    def __init__(self, name: str, folder: Path, ledger_url: str, ttl_s: float) -> None:
        self.name = name
        settings = Settings(
            home=folder / name, node=name, runtime="process", lease_ttl_s=ttl_s,
            ledger_url=SecretStr(ledger_url),
        )  # fmt: skip
        self.site = Site(settings, SystemClock())
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HEADWAY"))}
        self.env = clean | {
            "HEADWAY_HOME": str(settings.home), "HEADWAY_NODE": name,
            "HEADWAY_RUNTIME": "process", "HEADWAY_LEDGER_URL": ledger_url,
            "HEADWAY_LEASE_TTL_S": str(ttl_s), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self.site.settings.state_dir.mkdir(parents=True)
        self.guard_pid = 0

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Run the node's guard, as `headway up` starts it."""
        with (self.site.settings.state_dir / "guard.log").open("ab") as log:
            guard = subprocess.Popen(
                [sys.executable, "-m", "headway.node.guard"], env=self.env, stdout=log, stderr=log
            )
        self.guard_pid = guard.pid
        ready = self.site.settings.state_dir / "guard.ready"
        wait_for(ready.exists, lambda: f"no guard guards {self.name}")
        try:
            yield
        finally:
            guard.kill()
            guard.wait()

    @contextmanager
    def followed(self, run_id: str) -> Iterator[Process]:
        """Follow the run's attempt here, as its flow process does."""
        flow = get_context("fork").Process(target=follow, args=(self.site.settings, run_id))
        flow.start()
        try:
            yield flow
        finally:
            with suppress(ProcessLookupError):
                os.kill(flow.pid or 0, signal.SIGCONT)
            flow.kill()
            flow.join()

    def begin(self, run_id: str) -> None:
        """Claim the run for this node."""
        demand = Demand(128 * MIB, 0.1)
        ttl_s = self.site.settings.lease_ttl_s
        lease = admit_in_term(self.site.ledger, run_id, self.name, demand, ttl_s=ttl_s)
        if not isinstance(lease, Lease):
            raise RuntimeError(lease.reason)

    def said(self, run_id: str, attempt: int) -> list[float]:
        """When the program said that it was alive."""
        path = log_path(self.site.settings, run_id, attempt)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [float(line) for line in lines if line]

    def pids(self, run_id: str) -> list[int]:
        """Processes of the run's containers here that are alive."""
        listed = self.site.runtime.containers()
        return [pid for each in listed if each.run_id == run_id for pid in each.pids]

    def alive(self, run_id: str) -> bool:
        """Whether a container of the run is alive here."""
        listed = self.site.runtime.containers()
        return any(
            each.run_id == run_id and each.state is ContainerState.RUNNING for each in listed
        )


def follow(settings: Settings, run_id: str) -> None:
    """Be the flow process of *run_id* on the node with *settings*."""
    attempt = Attempt(Site(settings, SystemClock()), run_id)
    listener = cast("Any", SimpleNamespace(lines=lambda *_: None, watched=lambda _: None))
    if attempt.lease is not None:
        with suppress(LeaseLost, ContainerMissing):  # the second when the benchmark is done with it
            attempt.train(attempt.lease, dict, listener)


def once(old: Node, new: Node, *, whole: bool) -> Mapping[str, float]:
    """Freeze *old*, or its flow alone; remove it, begin on *new*, wake; what was seen."""
    run_id, ledger = str(uuid4()), new.site.ledger
    for node in (old, new):
        if ledger.nodes.get(node.name) is None:
            join_site(node.site)
    ledger.runs.enqueue(
        run_id, JOB.document(), name="alive", owner="me", team="default", pool="gpu",
        priority=0, submitted_at=ledger.now(),
    )  # fmt: skip
    old.begin(run_id)
    with ExitStack() as stack:
        flow = stack.enter_context(old.followed(run_id))
        wait_for(lambda: len(old.said(run_id, 1)) > 20, lambda: "attempt 1 does not begin")
        # A guard that was alone on the site a moment ago lets no lease expire yet.
        nodes = ledger.nodes
        wait_for(lambda: isfinite(nodes.held_s(old.name, 0.0)), lambda: "the lease never expires")
        frozen = [flow.pid or 0, *([old.guard_pid, *old.pids(run_id)] if whole else [])]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        snapshot.LOST_AFTER_S = -1.0  # as if it had been silent for a minute
        remove_node(new.site, old.name)
        kept = ledger.progress_snapshots.of([run_id])
        new.begin(run_id)
        stack.enter_context(new.followed(run_id))
        wait_for(lambda: len(new.said(run_id, 2)) > 5, lambda: "attempt 2 does not begin")
        woken_s = time.time()
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        wait_for(lambda: not old.alive(run_id), lambda: "the old container lives on")
        wait_for(lambda: not flow.is_alive(), lambda: "the old flow goes on")
        first, second = old.said(run_id, 1), new.said(run_id, 2)
        record = ledger.runs.get(run_id)
        told = ledger.progress_snapshots.of([run_id])
        accepted = record.attempt != 2 or record.node != new.name or not new.alive(run_id)
        accepted |= any(each.attempt == 1 and kept.get(run_id) != each for each in told.values())
        lease = ledger.leases.of_run(run_id)
        assert lease is not None
        ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, "done"), Measurement())
        for node in (old, new):
            for each in node.site.runtime.containers():
                node.site.runtime.remove(each.name)
        ledger.leases.release(lease.fence)
    return {
        "both_s": max(first[-1] - max(second[0], woken_s if whole else 0.0), 0.0),
        "accepted": accepted,
    }


def main() -> int:
    """Freeze, remove and wake again and again; print two rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--ttl", type=float, default=4.0)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started goes in any case
    logging.getLogger("headway").setLevel(logging.ERROR)
    begun_s, found = time.monotonic(), {True: [], False: []}
    with ExitStack() as stack:
        at = stack.enter_context(postgresql.server())
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-faults-"))
        Path(scratch).chmod(0o711)
        url = postgresql.new_database(at)
        Site(
            Settings(home=Path(scratch) / "first", ledger_url=SecretStr(url)), SystemClock()
        ).make_ledger()
        nodes = [Node(name, Path(scratch), url, asked.ttl) for name in ("left", "right")]
        for node in nodes:
            stack.enter_context(node.guarded())
        for number in range(2 * asked.times):
            whole = number % 2 == 1
            found[whole].append(once(*nodes, whole=whole))
            print(f"\r{number + 1} of {2 * asked.times}", end="", file=sys.stderr, flush=True)
    parts, wholes = found[False], found[True]
    two = sum(each["both_s"] > 0 for each in parts)
    longest_s = max(each["both_s"] for each in wholes)
    accepted = sum(each["accepted"] for each in (*parts, *wholes))
    print(
        f"\n| worker and flows frozen, node removed, woken | 50 times, never two alive "
        f"| {len(parts)} times, {two} with two alive, {accepted} writes accepted |\n"
        f"| the whole node frozen and woken | dead within 1 s, nothing accepted "
        f"| {len(wholes)} times, dead after {longest_s:.2f} s at most; "
        f"{time.monotonic() - begun_s:.0f} s |"
    )
    return int(bool(two or accepted or longest_s > 1.0))


if __name__ == "__main__":
    sys.exit(main())
