"""What learnt time limits do to waits on a real Slurm with backfill.

    faketime -f '+0 x30' python benchmarks/engine_waits.py TRACE.csv     # root; slurm-wlm, munge

The same jobs of a trace (`headway replay` has its columns), each a `sleep`, on two clusters that
this starts side by side: once with the limits as their users wrote them, once with those that a
site would ask for: by what had ended until then, or, with ``--estimates given``, by the predictions
in the trace. One that is killed at its limit is submitted again
as a site does it, and has lost all. A wait is what lies between its submission and its end beside
its run time. An hour of the trace is half a minute of Slurm, whose limits are whole minutes;
`faketime` lets a minute be two seconds, since Slurm itself knows no shorter ones. That needs a
machine that does little else: its services wait for each other by the same clock.
"""

import argparse
import math
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from headway.engine.ask import time_limit_s  # noqa: E402
from headway.engine.decide import more_time_s  # noqa: E402
from headway.model.engine import EnginePool  # noqa: E402
from headway.model.run import Prediction  # noqa: E402
from headway.replay.history import History  # noqa: E402
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob, read_jobs  # noqa: E402
from headway.units import DAY_S, HOUR_S, MINUTE_S  # noqa: E402
from tests.support import slurm as support  # noqa: E402
from tests.support.slurm import Slurm, why_none  # noqa: E402

GRACE_S = 10.0
NODES = ("n1", "n2")
LOOK_EVERY_S = 60.0
"""Of Slurm's time: less than its MinJobAge, so that no end is missed."""
_SLURMS_OWN = """\
SchedulerParameters=bf_window=20000
MessageTimeout=1000
TCPTimeout=1000
BatchStartTimeout=1000
SlurmdTimeout=0
MaxJobCount=30000
"""
"""How often it plans is left to Slurm; every minute of its queue is in the plan."""
Limit = Callable[[TraceJob, float], float]


@dataclass
class Tried:
    """One job of the trace on one cluster. Times in seconds of the trace."""

    row: TraceJob
    limit_s: float
    submitted_s: float
    ended_s: float = math.nan
    kills: int = 0

    @property
    def wait_s(self) -> float:
        """What it took longer than its run time."""
        return self.ended_s - self.submitted_s - self.row.duration_s


class Users:
    """Limits as users write them."""

    def ended(self, row: TraceJob) -> None:
        """Nobody learns of it."""

    def limit_s(self, row: TraceJob) -> float:
        """The user's."""
        return row.limit_s


@dataclass
class Sites:
    """Limits that a site asks for."""

    estimates: Estimates
    history: History = field(default_factory=lambda: History(Estimates.LEARNED))

    def ended(self, row: TraceJob) -> None:
        """Learn of it."""
        self.history.ended(row, row.duration_s)

    def limit_s(self, row: TraceJob) -> float:
        """As `engine.ask` has it for a job whose user has named that limit."""
        said = self.history._said(row)  # noqa: SLF001 - what a site's forecast says
        if self.estimates is Estimates.GIVEN:
            median_s, high_s = row.predicted_s
            said = Prediction(runtime_s=median_s, runtime_high_s=high_s, basis="the trace")
        limit_s = time_limit_s(row.limit_s, said, GRACE_S, EnginePool("gpu", ()))
        return row.limit_s if limit_s is None else limit_s


class Stream:
    """The jobs of a trace as they come, on one cluster."""

    def __init__(self, cluster: Slurm, limits: Users | Sites, minute_s: float) -> None:
        self._cluster, self._limits, self._per_s = cluster, limits, MINUTE_S / minute_s
        self._under_way: dict[str, Tried] = {}
        self.done: list[Tried] = []

    def run(self, rows: list[TraceJob]) -> None:
        """Submit all at their time, and wait for their ends."""
        began_s, left = time.time(), [*rows]
        while left or self._under_way:
            now_s = (time.time() - began_s) / self._per_s
            while left and left[0].submit_s <= now_s:
                row = left.pop(0)
                self._submit(Tried(row, self._limits.limit_s(row), row.submit_s))
            self._look(began_s)
            next_s = left[0].submit_s * self._per_s + began_s if left else math.inf
            time.sleep(max(min(next_s - time.time(), LOOK_EVERY_S), 1.0))

    def _submit(self, tried: Tried) -> None:
        minutes = max(math.ceil(tried.limit_s * self._per_s / MINUTE_S), 1)
        sleep_s = tried.row.duration_s * self._per_s
        asked = [f"--gres=gpu:{tried.row.gpus}", f"--time={minutes}", "--mem=8M", "--no-requeue"]
        asked += ["--parsable", "--output=/dev/null", f"--wrap=sleep {sleep_s:.1f}"]
        self._under_way[self._cluster.ask("sbatch", *asked)] = tried

    def _look(self, began_s: float) -> None:
        asked = "squeue", "--noheader", "--states=all", "--format=%i %T %e"
        try:
            answer = self._cluster.ask(*asked)
        except subprocess.CalledProcessError:  # a busy machine, and time that flies
            return
        for line in answer.splitlines():
            name, state, end = line.split()
            if name not in self._under_way or state not in {"COMPLETED", "TIMEOUT", "FAILED"}:
                continue
            tried = self._under_way.pop(name)
            row = tried.row
            tried.ended_s = (time.mktime(time.strptime(end, "%Y-%m-%dT%H:%M:%S")) - began_s) / (
                self._per_s
            )
            if state == "TIMEOUT":
                tried.kills += 1
                longer_s = more_time_s(tried.limit_s, row.limit_s, None)
                if longer_s is not None:
                    tried.limit_s = longer_s
                    self._submit(tried)
                    continue
            self._limits.ended(row)
            self.done.append(tried)


def cluster(folder: Path, gpus: int) -> Slurm:
    """Two nodes whose scheduler has its own settings, as far as that is possible here."""
    folder.mkdir()
    made = Slurm(folder, nodes=NODES, cpus=64, memory_mib=65_536, gpus=gpus, gpu_types={})
    conf = folder / "slurm.conf"
    found = re.sub(r"(SchedulerParameters|MaxJobCount)=.*\n", "", conf.read_text())
    conf.write_text(found + _SLURMS_OWN)
    return made


def told(name: str, done: list[Tried]) -> str:
    """Waits of one stream, in the trace's own time."""
    waits = [each.wait_s for each in done]
    over = [each.limit_s / max(each.row.duration_s, 1.0) for each in done]
    kills = sum(each.kills for each in done)
    lost = sum(each.kills > 0 for each in done)
    return (
        f"{name}: {len(done)} jobs, wait {statistics.mean(waits) / HOUR_S:.1f} h in the mean, "
        f"{statistics.median(waits) / HOUR_S:.2f} h in the median, {max(waits) / DAY_S:.1f} d at "
        f"most; limit by run time {statistics.median(over):.1f}; {kills} kills of {lost} jobs"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--estimates", type=Estimates, default=Estimates.LEARNED)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="The first job of the slice.")
    parser.add_argument("--gpus", type=int, default=24, help="Of each of the two nodes.")
    parser.add_argument("--hours", type=float, default=2.0, help="Of the trace in a minute.")
    given = parser.parse_args()
    if missing := why_none():
        raise SystemExit(missing)
    support._START_S = HOUR_S / 4  # noqa: SLF001 - of a clock that may run fast
    name, data = given.trace.name, given.trace.read_bytes()
    rows = read_jobs(data, name, given.estimates, GpuSharing.WHOLE)
    rows = rows[given.first : given.first + given.jobs]
    first_s = rows[0].submit_s
    rows = [replace(row, submit_s=row.submit_s - first_s) for row in rows]
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    streams, threads, clusters = {}, [], []
    try:
        for arm, limits in (("users", Users()), ("headway", Sites(given.estimates))):
            clusters.append(cluster(folder / arm, given.gpus))
            clusters[-1].start()
            stream = streams[arm] = Stream(clusters[-1], limits, given.hours * HOUR_S)
            threads.append(threading.Thread(target=stream.run, args=([*rows],)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for each in clusters:
            each.stop()
    means, longest = [], []
    for arm, stream in streams.items():
        print(told(arm, stream.done))
        means.append(statistics.mean(each.wait_s for each in stream.done))
        longest.append(max(each.wait_s for each in stream.done))
    mean, most = means[1] / means[0], longest[1] / longest[0]
    print(f"headway's by users': mean {mean:.2f}, longest {most:.2f}")


if __name__ == "__main__":
    main()
