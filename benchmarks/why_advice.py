"""Does a run start earlier with what `headway why` advises, and within the interval said?

    PYTHONPATH=. python benchmarks/why_advice.py JOBS.csv NODES GPUS --share 0.1

At the submission of this share of the jobs that wait, the changes are tried that `why` tries of
what a trace has: fewer GPUs (for as much longer), less memory of the GPU. The smallest of each kind
that the queue, played forward, starts earlier is the advice. Then the replay goes on twice, as it
was and with the change: with all true run times, and with all who came later.
"""

import argparse
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings
from headway.policy.why import fewer_gpus, is_earlier
from headway.replay.cluster import Cluster, Job, Shape, to_job
from headway.replay.forward import play_forward, span_of
from headway.replay.history import Told
from headway.replay.ours import Headway
from headway.replay.said_starts import SaidStarts
from headway.replay.simulate import PolicyName, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob, read_jobs
from headway.units import GIB, MINUTE_S

_PARTS = (0.75, 0.5, 0.25)


@dataclass(slots=True)
class Advice:
    """A change, what was said of it, and what came."""

    kind: str
    job: Job
    low_s: float
    high_s: float
    """The interval said for its start."""
    start_s: float = 0.0
    """With the change."""


class Advisor(SaidStarts):
    """Advises jobs that wait, and has the replay go on with the advice in a process of its own."""

    def __init__(self, share: float, shape: Shape) -> None:
        """See `SaidStarts`."""
        super().__init__(share)
        self.found: list[Advice] = []
        self.asked = 0
        self._shape = shape
        self._applied: Job | None = None
        self._answer = 0

    def joined(
        self, new: Sequence[Job], jobs: Sequence[Job], line: Headway[Ask], cluster: Cluster
    ) -> None:
        """Advise; where the advice is applied, wait for the start and say when it was."""
        if self._applied is not None:
            if self._applied.places:
                os.write(self._answer, struct.pack("d", self._applied.start_s))
                os._exit(0)
            return
        for job in self.chosen(new, line):
            self.asked += 1
            self._advise(job, jobs, line, cluster)
            if self._applied is not None:
                return

    def _advise(self, job: Job, jobs: Sequence[Job], line: Headway[Ask], cluster: Cluster) -> None:
        run_id, now_s = job.ask.run_id, cluster.now_s
        base = play_forward(self.present(jobs, line, cluster), frozenset([run_id]))[run_id]
        for changes in _changes(job.trace):
            for kind, row, factor in changes:
                changed = self._as_job(row, job, factor, now_s)
                line.queue.start(job.ask, now_s)
                line.queue.end(job.ask)
                line.add(changed.ask)
                waits = play_forward(self.present(jobs, line, cluster), frozenset([run_id]))
                helps = is_earlier(waits[run_id], base)
                if helps:
                    said = self.learnt.wait(span_of(waits[run_id]))
                    advice = Advice(kind, job, now_s + said.low_s, now_s + said.high_s)
                    self._apply(advice, changed, jobs, line, cluster)
                    if self._applied is not None:
                        return
                line.queue.start(changed.ask, now_s)
                line.queue.end(changed.ask)
                line.add(job.ask)
                if helps:
                    break

    def _as_job(self, row: TraceJob, job: Job, factor: float, now_s: float) -> Job:
        ask = job.ask
        told = Told(ask.median_s * factor, ask.high_s * factor, ask.gpu.load or 0.5)
        return to_job(
            replace(row, submit_s=now_s), int(ask.run_id), told, shape=self._shape,
            sharing=GpuSharing.HEADWAY, utilisation_limit=1.0,
        )  # fmt: skip

    def _apply(
        self,
        advice: Advice,
        changed: Job,
        jobs: Sequence[Job],
        line: Headway[Ask],
        cluster: Cluster,
    ) -> None:
        reading, answer = os.pipe()
        child = os.fork()
        if child:
            os.close(answer)
            (advice.start_s,) = struct.unpack("d", os.read(reading, 8))
            os.close(reading)
            os.waitpid(child, 0)
            self.found.append(advice)
            return
        self._applied, self._answer = changed, answer
        jobs[int(changed.ask.run_id)] = changed  # type: ignore[index]
        for outcome in line.decide(cluster.board, cluster.now_s):
            cluster.started(jobs[int(outcome.ask.run_id)], outcome.start)


def _changes(row: TraceJob) -> Iterator[list[tuple[str, TraceJob, float]]]:
    """By kind the changes to try, the smallest first, with how much longer the run takes then."""
    fewer = []
    for gpus in fewer_gpus(row.gpus):
        factor = row.gpus / gpus
        longer = replace(row, gpus=gpus, duration_s=row.duration_s * factor)
        fewer.append(("fewer GPUs", longer, factor))
    yield fewer
    if row.gpus == 1:
        less = [int(row.gpu_memory_bytes * part) for part in _PARTS]
        yield [("less memory", replace(row, gpu_memory_bytes=size), 1.0) for size in less]


def main() -> None:
    """Print how much of the advice was good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("gpus", type=int)
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    shape = Shape(given.nodes, given.gpus, 24 * GIB)
    told, sharing = Estimates.LEARNED, GpuSharing.HEADWAY
    rows = read_jobs(given.trace.read_bytes(), given.trace.name, told, sharing)
    advisor = Advisor(given.share, shape)
    simulate(
        rows, shape, PolicyName.HEADWAY, sharing, told, settings=PolicySettings(), said=advisor
    )
    print(
        "| advice | given | earlier than unchanged | within the interval said |\n|---|---|---|---|"
    )
    kinds = sorted({each.kind for each in advisor.found})
    for kind in (*kinds, "all"):
        some = [each for each in advisor.found if kind in (each.kind, "all")]
        earlier = sum(each.start_s < each.job.start_s for each in some) / len(some)
        within = sum(
            each.low_s - MINUTE_S <= each.start_s <= each.high_s + MINUTE_S for each in some
        )
        print(f"| {kind} | {len(some)} | {earlier:.1%} | {within / len(some):.1%} |")
    print(f"{advisor.asked} jobs that waited were looked at")


if __name__ == "__main__":
    main()
