"""What parking would give in a replay: a run gives its GPUs back for a while, and loses no work.

    PYTHONPATH=. python benchmarks/parking.py A.csv B.csv [--only TEXT]… [--estimates perfect]

A run that is first in the queue and has no place may have others parked: their GPU memory is
written to the memory of their host, which has to have room for it, and they go on later on the same
node. They are parked where what those lose who stop, the predicted time of the one that starts and
the copies, is less than it would wait for them. Nobody is parked more than `MOST` times; gangs and
those who wait parked have nobody parked.

Rules: ``due`` parks for a run whose promise is due, ``first`` for whoever is first, ``any`` for the
first of eight for whom it pays, ``one`` the same where one run alone has to be parked, which has
four times as long to go. ``checkpoint`` is ``one`` where runs are stopped by their own checkpoint
instead, go on anywhere, and do `LOST_S` again.
Mean wait, longest wait and mean completion by those without any of it; below 1 is better.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.replay_matrix import variants
from headway.policy.fit import Ask
from headway.policy.preempt import Runner, choose
from headway.policy.settings import PolicySettings
from headway.replay.cluster import Cluster, Job, Shape, to_job
from headway.replay.history import History
from headway.replay.ours import Headway
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob, read_jobs
from headway.units import DAY_S, GIB, HOUR_S

MOST = 3
HOST_BYTES = 512 * GIB
"""Of each node, for parked runs."""
COPY_BYTES_PER_S = 12e9
"""PCIe 3.0 with 16 lanes, as measured for pinned memory."""
SETTLES_S = 5.0
"""To pause a program, and to let it go on."""
LOST_S = 360.0
"""Half of ten minutes between two checkpoints, and a minute to start."""
DEFAULT = ("a", "b", *(f"{name}, weeks drawn anew ({n})" for name in "ab" for n in (1, 2, 3)))
RULES = ("due", "first", "any", "one", "checkpoint")
_TIMES_SHORTER = 4.0
_LOOKED_AT = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Parkable(Runner):
    left_s: float = 0.0

    def lost_s(self, now_s: float) -> float:  # noqa: ARG002 - as its base
        """Those with most left go first: they are in the way longest."""
        return -self.left_s


@dataclass
class Replay:
    """One replay of headway's policy in which running runs may be parked."""

    shape: Shape
    rule: str
    settings: PolicySettings
    jobs: list[Job] = field(default_factory=list)
    parked_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long each run was parked in all."""
    parked_at: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of those that are parked: since when, and on which node."""
    times: Counter[str] = field(default_factory=Counter)
    running: dict[str, Job] = field(default_factory=dict)
    said_s: dict[str, float] = field(default_factory=dict)
    """What was predicted of each at its submission."""

    def run(self, rows: Sequence[TraceJob], estimates: Estimates) -> dict[str, float]:
        """Replay *rows*; the figures."""
        self.line = Headway.empty(self.settings, self.shape.totals)
        self.cluster = Cluster(self.shape.board(self.settings.utilisation_limit))
        history, done = History(estimates), 0
        while done < len(rows):
            arrival_s = rows[len(self.jobs)].submit_s if len(self.jobs) < len(rows) else math.inf
            now_s = min(arrival_s, self.cluster.next_end_s())
            self.cluster.advance(now_s)
            over = self.cluster.ended()
            for job in over:
                del self.running[job.ask.run_id]
                self.line.ended(job.ask, now_s)
                history.ended(job.trace, now_s - job.start_s - self.parked_s[job.ask.run_id])
            done += len(over)
            look = bool(over)
            while len(self.jobs) < len(rows) and rows[len(self.jobs)].submit_s <= now_s:
                row = rows[len(self.jobs)]
                job = to_job(
                    row, len(self.jobs), history.told(row), shape=self.shape,
                    sharing=GpuSharing.HEADWAY, utilisation_limit=self.settings.utilisation_limit,
                )  # fmt: skip
                self.jobs.append(job)
                self.said_s[job.ask.run_id] = job.ask.mean_s
                self.line.add(job.ask)
                look = look or bool(self.rule) or self.cluster.board.has_room(job.ask)
            if look:
                self._decide()
                while self.rule and self._park():
                    pass
        wait = np.array([job.start_s - job.trace.submit_s for job in self.jobs])
        completion = np.array([job.end_s - job.trace.submit_s for job in self.jobs])
        return {
            "wait": float(wait.mean()),
            "longest": float(wait.max()),
            "completion": float(completion.mean()),
            "parked": sum(self.times.values()),
        }

    def _decide(self) -> None:
        for outcome in self.line.decide(self.cluster.board, self.cluster.now_s):
            job = self.jobs[int(outcome.ask.run_id)]
            job.ask, first_s = outcome.ask, job.start_s
            self.cluster.started(job, outcome.start)
            self.running[job.ask.run_id] = job
            if job.ask.run_id in self.times:
                job.start_s = first_s
                since_s, _ = self.parked_at.pop(job.ask.run_id)
                self.parked_s[job.ask.run_id] += self.cluster.now_s - since_s

    def _left_s(self, job: Job) -> float:
        """As the site sees it: by its prediction, and of one that has outlived it by its age."""
        age_s = self._age_s(job)
        return max(self.said_s[job.ask.run_id] - age_s, self.settings.overrun_frac * age_s)

    def _age_s(self, job: Job) -> float:
        return self.cluster.now_s - job.start_s - self.parked_s[job.ask.run_id]

    def _park(self) -> bool:
        """Park who is in the way of one that is looked at; whether that one started."""
        front = self.line.queue.front(self.cluster.now_s)
        waiting = [each for each in front if each.run_id not in self.times]
        looked_at = waiting[: _LOOKED_AT if self.rule in ("any", "one", "checkpoint") else 1]
        return any(self._park_for(ask) for ask in looked_at)

    def _park_for(self, ask: Ask) -> bool:
        now_s = self.cluster.now_s
        if self.rule == "due" and (ask.promised_s or math.inf) > now_s:
            return False
        held = Counter[int]()
        for run_id, (_, node) in self.parked_at.items():
            held[node] += _bytes(self.jobs[int(run_id)])
        runners = [
            _Parkable(job.ask, job.places, job.start_s, left_s=self._left_s(job))
            for job in self.running.values()
            if job.ask.nodes == 1
            and self.times[job.ask.run_id] < MOST
            and held[job.places[0].node] + _bytes(job) <= HOST_BYTES
            and self._left_s(job) > ask.mean_s
        ]
        board = self.cluster.board.copy()
        board.refresh(now_s, self.settings.overrun_frac)
        gone, _ = choose(board, replace(ask, priority=1), runners, now_s)
        if not gone:
            return False
        costs_s = sum(ask.mean_s + self._copy_s(self.jobs[int(each.ask.run_id)]) for each in gone)
        earliest_s, _ = board.earliest(ask, now_s)
        longest_s = max(each.left_s for each in gone)  # type: ignore[attr-defined]
        if self.rule in ("one", "checkpoint") and (
            len(gone) > 1 or longest_s < _TIMES_SHORTER * ask.mean_s
        ):
            return False
        if costs_s >= min(earliest_s - now_s, longest_s):
            return False
        for each in gone:
            job = self.jobs[int(each.ask.run_id)]
            self._stop(job)
        self._decide()
        for each in gone:
            self.line.add(self.jobs[int(each.ask.run_id)].ask)
        if ask.run_id not in self.running:  # another one took the place
            self._decide()
        return ask.run_id in self.running

    def _stop(self, job: Job) -> None:
        now_s, run_id = self.cluster.now_s, job.ask.run_id
        age_s, left_s = self._age_s(job), self._left_s(job)
        job.left_s = max(job.left_s - (now_s - job.since_s) * job.speed, 0.0) + self._copy_s(job)
        self.cluster._leave(job)  # noqa: SLF001 - what no replay does otherwise
        job.speed = 1.0
        del self.running[run_id]
        self.line.ended(job.ask, now_s)
        self.times[run_id] += 1
        self.parked_at[run_id] = now_s, job.places[0].node
        job.ask.median_s = max(left_s, 1.0)
        job.ask.high_s = max(job.ask.high_s - age_s, job.ask.median_s * 2)
        if self.rule != "checkpoint":  # its memory lies there
            job.ask.node = f"node-{job.places[0].node}"

    def _copy_s(self, job: Job) -> float:
        if self.rule == "checkpoint":
            return LOST_S
        return 2 * SETTLES_S + 2 * job.trace.gpu_memory_bytes / COPY_BYTES_PER_S


def _bytes(job: Job) -> int:
    return job.trace.gpu_memory_bytes * job.trace.gpus


def compared(
    variant_rows: pd.DataFrame, shape: Shape, estimates: Estimates
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each rule's figures; the first are those without any."""
    for rule in ("", *RULES):
        rows = read_jobs(
            variant_rows.to_csv(index=False).encode(), "trace", estimates, GpuSharing.HEADWAY
        )
        yield rule, Replay(shape, rule, PolicySettings()).run(list(rows), estimates)


def main() -> None:
    """Print one line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--estimates", type=Estimates, default=Estimates.LEARNED)
    given = parser.parse_args()
    a, b = (pd.read_csv(path, dtype={"job_id": str, "team": str}) for path in (given.a, given.b))
    names = ("wait", "longest", "completion")
    print(f"| variant | wait h, longest d, completion h | {' | '.join(RULES)} |")
    for each in variants(a, b):
        if each.name not in (given.only or DEFAULT):
            continue
        found = dict(compared(each.rows, Shape(each.nodes, each.gpus, 24 * GIB), given.estimates))
        plain = found.pop("")
        cells = [
            f"{', '.join(f'{one[name] / plain[name]:.2f}' for name in names)} ({one['parked']:.0f})"
            for one in found.values()
        ]
        told = f"{plain['wait'] / HOUR_S:.1f}, {plain['longest'] / DAY_S:.1f}, "
        told += f"{plain['completion'] / HOUR_S:.1f}"
        print(f"| {each.name} | {told} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
