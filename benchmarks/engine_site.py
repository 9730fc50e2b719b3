"""What a site adds to a real Slurm of two nodes: to the first line, and with many runs.

    python benchmarks/engine_site.py [--jobs 500] [--waiting 10000]      # root; slurm-wlm, munge

Prints seconds from the submission at the gateway of a live site to the first line, beside a bare
`sbatch`, taking turns. Then, by rounds of a follower over a real ledger without Prefect: how runs
went that are single, members of arrays, in chains and over two nodes, and how often each ran; and
of a queue that long that waits: seconds of a round, with and without a question to Slurm, and
remote calls of the question.
"""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.engine import STAMP, calls, first_line_s  # noqa: E402
from headway.client import Client  # noqa: E402
from headway.clock import SystemClock  # noqa: E402
from headway.credentials import Address  # noqa: E402
from headway.engine.place import Place  # noqa: E402
from headway.engine.slurm import SlurmEngine  # noqa: E402
from headway.model.array import Array  # noqa: E402
from headway.model.run import ExitKind, RunState  # noqa: E402
from headway.policy.settings import LINE  # noqa: E402
from headway.scheduler.engine_jobs import EngineJobs  # noqa: E402
from headway.scheduler.engine_queue import EngineQueue  # noqa: E402
from headway.settings import Settings  # noqa: E402
from headway.site import Site  # noqa: E402
from headway.this_node import join_site  # noqa: E402
from tests.support.postgresql import with_ledger  # noqa: E402
from tests.support.site import live_site  # noqa: E402
from tests.support.slurm import Slurm, account, logins, slurm, why_none  # noqa: E402

POOL = "all"
ONCE = 'echo x >> "$HEADWAY_OUTPUTS/count"; date +%s.%N > "$HEADWAY_OUTPUTS/at"'


class Follower:
    """What the follower's process does each second, as often as there is something to do."""

    def __init__(self, home: Path, login: str) -> None:
        node = Site(Settings(home=home, runtime="process", node="here"), SystemClock())
        join_site(node)
        self.site = node.of_pool(POOL)
        engine = SlurmEngine(Place(node.settings.slurm_dir), "bench", SystemClock())
        self.jobs = EngineJobs(engine, self.site)
        node.ledger.engines.keep("slurm", "here", [(p.name, p) for p in engine.inspect().pools])
        node.ledger.settings.keep(LINE, logins("t", {"*": login}))
        self.queue = EngineQueue(self.site, self.jobs)
        gc.freeze()  # as in the process that the fork server makes

    def enqueue(self, run_id: str, shell: str, **job: Any) -> None:
        """Put a run into the ledger."""
        document = self.document(shell) | job
        self.site.ledger.runs.enqueue(
            run_id, document, name=run_id, owner="o", team="t", pool=POOL, priority=0,
            submitted_at=self.site.ledger.now(),
        )  # fmt: skip

    def document(self, command: str) -> dict[str, Any]:
        """A small job."""
        small = {"cpus": 1, "host_memory": "32MiB"}
        about = {"name": "j", "owner": "o", "team": "t", "python": "3", "resources": small}
        return about | {"command": ["sh", "-c", command]}

    def array(self, name: str, size: int, at_most: int) -> list[str]:
        """An array whose members are runs already."""
        ledger = self.site.ledger
        array = ledger.arrays.add(
            self.document(ONCE) | {"name": name}, Array({"n": tuple(range(size))}, (), at_most),
            name=name, owner="o", team="t", pool=POOL, queue="", key=None,
            submitted_at=ledger.now(),
        )  # fmt: skip
        ids = [f"{name}-{index}" for index in range(1, size + 1)]
        for index, run_id in enumerate(ids, 1):
            ledger.arrays.join(array.array_id, index, run_id)
        return ids

    def round(self) -> float:
        """One round; its seconds."""
        began_s = time.monotonic()
        self.queue.contend(reaches_prefect=True)
        self.queue.run_pass()
        return time.monotonic() - began_s

    def until_ended(self, runs: list[str], within_s: float) -> None:
        """Go on until all of *runs* have ended."""
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            self.round()
            found = self.site.ledger.runs.of(runs).values()
            if all(run.state is RunState.ENDED for run in found):
                return
            time.sleep(0.2)


def first_lines(cluster: Slurm, folder: Path, login: str, number: int = 9) -> str:
    """Seconds from a submission to the first line, beside those of a bare `sbatch`."""
    ours: list[float] = []
    bare: list[float] = []
    small = {"cpus": 1, "host_memory": "32MiB"}
    job = {"name": "line", "python": "3", "command": ["sh", "-c", STAMP], "resources": small}
    home = folder / "site/home"
    home.parent.mkdir()
    with live_site(home, "process", SLURM_CONF=cluster.env["SLURM_CONF"]) as site:
        site.json("engine", "add", "slurm")
        site.set_block("headway-line", **logins("default", {"*": login}))
        there = site.at_the_gateway()
        with Client(Address(there["HEADWAY_URL"], there["HEADWAY_TOKEN"])) as client:
            for turn in range(number + 1):
                began_s = time.time()
                run = client.submit(job, pool=POOL)
                log = home / "runs" / run.run_id / "log/attempt-1.log"
                ours.append(first_line_s(log, began_s))
                run.wait()
                out, began_s = folder / f"bare{turn}", time.time()
                cluster.ask("sbatch", "--mem=32M", f"--output={out}", f"--wrap={STAMP}")
                bare.append(first_line_s(out, began_s))
    # The first one finds nothing warm.
    ours_s, bare_s = statistics.median(ours[1:]), statistics.median(bare[1:])
    more = sorted(each - other for each, other in zip(ours[1:], bare[1:], strict=True))
    return (
        f"{ours_s:.2f} s; bare sbatch {bare_s:.2f} s; more by {ours_s - bare_s:.2f} s "
        f"({more[0]:.2f} to {more[-1]:.2f})"
    )


def mixed(follower: Follower, number: int) -> str:
    """So many runs of all kinds: how they ended, and how often each ran."""
    began_s = time.monotonic()
    runs: list[str] = []
    for at in range(number * 6 // 10 // 50):
        runs += follower.array(f"array{at}", 50, at_most=(4, 50)[at % 2])
    chains = [(f"first{at}", f"then{at}") for at in range(number // 10)]
    for first, then in chains:
        follower.enqueue(first, ONCE)
        follower.enqueue(then, ONCE, after={"run": first, "when": "ok"})
        runs += [first, then]
    gangs = [f"gang{at}" for at in range(number // 20)]
    for name in gangs:
        follower.enqueue(name, ONCE, resources={"cpus": 1, "host_memory": "32MiB", "nodes": 2})
    runs += gangs
    while len(runs) < number:
        runs.append(f"one{len(runs)}")
        follower.enqueue(runs[-1], ONCE)
    follower.until_ended(runs, 3600.0)
    took_s, found = time.monotonic() - began_s, follower.site.ledger.runs.of(runs)
    well = sum(run.exit is not None and run.exit.kind is ExitKind.OK for run in found.values())
    outputs = follower.site.settings.runs_dir
    ran = {run: _text(outputs / run / "outputs/count").count("x") for run in runs}
    wrong = [run for run, times in ran.items() if times != (2 if run in gangs else 1)]
    early = [
        then for first, then in chains
        if _text(outputs / first / "outputs/at") > _text(outputs / then / "outputs/at")
    ]  # fmt: skip
    return (
        f"{number} runs in {took_s:.0f} s: {well} ended well, {len(wrong)} ran never or twice, "
        f"{len(early)} of {len(chains)} before the one that they follow"
    )


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def long_queue(follower: Follower, cluster: Slurm, number: int) -> str:
    """A round over so many runs that wait in Slurm's queue."""
    cluster.ask("scontrol", "update", f"PartitionName={POOL}", "State=DOWN")
    size = 200
    waiting = [run for at in range(number // size) for run in follower.array(f"w{at}", size, size)]
    began_s = time.monotonic()
    while len(follower.jobs.now()) < len(waiting):
        follower.round()
    in_s = time.monotonic() - began_s
    for _ in range(3):
        follower.round()
    before, asked, rounds = calls(cluster), follower.jobs.questions, []
    question_s = 0.0
    while follower.jobs.questions < asked + 2:
        questions, took_s = follower.jobs.questions, follower.round()
        if follower.jobs.questions > questions:
            question_s = max(question_s, took_s)
        else:
            rounds.append(took_s)
        time.sleep(0.2)
    called = (calls(cluster) - before) / 2
    return (
        f"{len(waiting)} wait (submitted within {in_s:.0f} s): a round takes "
        f"{statistics.median(rounds):.2f} s, one that asks Slurm {question_s:.2f} s and "
        f"{called:.1f} remote calls"
    )


@contextmanager
def own_slurm() -> Iterator[tuple[Slurm, Path, str]]:
    """A Slurm of two nodes that this process's commands find, a folder that both see, a login."""
    if missing := why_none():
        raise SystemExit(missing)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o711)
    (folder / "cluster").mkdir(0o711)
    cluster_of = slurm(folder / "cluster", cpus=8, nodes=("n1", "n2"), memory_mib=16_384)
    with account(folder / "member") as user, cluster_of as cluster:
        os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
        yield cluster, folder, user.pw_name


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--waiting", type=int, default=10_000)
    given = parser.parse_args()
    with own_slurm() as (cluster, folder, login):
        print("submission to first line:", first_lines(cluster, folder, login), flush=True)
        follower = Follower(with_ledger(folder), login)
        print(mixed(follower, given.jobs), flush=True)
        print(long_queue(follower, cluster, given.waiting), flush=True)


if __name__ == "__main__":
    main()
