"""Many short jobs submitted at once on one site, and what becomes of them."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from headway.ledger import Ledger
from headway.ledger.records import RunRecord
from headway.model.run import GRANTED, ExitKind, RunState
from headway.node.daemon import server_daemon, worker_daemon
from headway.node.flowlock import live_flow
from headway.node.forkstart import running_server
from headway.settings import Settings
from tests.support.site import LiveSite, sleeper

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Burst:
    """What became of a burst."""

    jobs: int
    well: int
    """Ended, and well."""
    ended: int
    wedged: tuple[str, ...]
    """Runs that held a lease at the end of the patience, and had no flow process."""
    slowest_start_s: float
    """Longest that a flow process took from the grant to its first step."""
    took_s: float
    """From the first submission to the end of the last run, or of the patience."""
    cpu_s: dict[str, float]
    """Processor time of the whole burst, by what used it."""


def settings_of(site: LiveSite) -> Settings:
    """The settings of *site*'s processes."""
    return Settings(home=site.home, port=site.port, node=site.env["HEADWAY_NODE"])


def run_burst(site: LiveSite, jobs: int, patience_s: float, say: Callable[[str], None]) -> Burst:
    """Submit *jobs*, and wait until all have ended or *patience_s* are over."""
    settings = settings_of(site)
    ledger = Ledger.open(site.ledger_url())
    before, begun_s = cpu_by_process(settings), time.monotonic()
    hand_in(site, jobs)
    say(f"{jobs} jobs were submitted after {time.monotonic() - begun_s:.0f} s")
    runs: list[RunRecord] = []
    while time.monotonic() < begun_s + patience_s:
        time.sleep(_LOOK_EVERY_S)
        runs = ledger.runs.all()
        if sum(run.state is RunState.ENDED for run in runs) == jobs:
            break
        say(f"{ledger.runs.counts()}")
    took_s = time.monotonic() - begun_s
    after = cpu_by_process(settings)
    slowest_start_s = max((_start_s(ledger, run.run_id) for run in runs), default=0.0)
    ledger.close()
    granted = [run.run_id for run in runs if run.state in GRANTED]
    return Burst(
        jobs,
        sum(run.exit is not None and run.exit.kind is ExitKind.OK for run in runs),
        sum(run.state is RunState.ENDED for run in runs),
        tuple(each for each in granted if live_flow(settings.state_dir, each) is None),
        slowest_start_s,
        took_s,
        {name: after[name] - before[name] for name in after},
    )


def _start_s(ledger: Ledger, run_id: str) -> float:
    leases, steps = ledger.leases.every_of_run(run_id), ledger.steps.of_run(run_id)
    if not leases or not steps:
        return 0.0
    return (steps[0].started_at - leases[0].granted_at).total_seconds()


def hand_in(site: LiveSite, jobs: int) -> None:
    """Submit jobs that end as soon as they begin, as fast as the server takes them."""
    job = sleeper() | {
        "command": ["true"],
        "resources": {"host_memory": "32MiB", "cpus": 0.05},
        "max_runtime": "5m",
    }
    with site.server() as server:
        for number in range(jobs):
            server.submit({"job": job}, name=f"short-{number}", tags=[], key=None)


def cpu_by_process(settings: Settings) -> dict[str, float]:
    """Processor seconds so far of server, worker and flow processes, with ended children."""
    pids = {
        "server": server_daemon(settings).process(),
        "worker": worker_daemon(settings).process(),
        "flows": (pid := running_server(settings.state_dir)) and psutil.Process(pid),
    }
    return {name: cpu_s(root) for name, root in pids.items() if root}


def lowest_priority() -> None:
    """Leave the processors to all others, also those of other sessions."""
    os.setsid()
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


def cpu_s(root: psutil.Process) -> float:
    """Of a process, of its children, and of those children that have ended."""
    total_s = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            total_s += sum(process.cpu_times()[:4])  # user, system, and both of its ended children
        except psutil.NoSuchProcess:
            continue  # it has ended since, and its parent has its time
    return total_s
