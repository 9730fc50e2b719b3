"""What the adapter for Slurm costs, on a real Slurm of two nodes that this starts.

    python benchmarks/engine.py [--kills 200]      # root; slurm-wlm, munge

Seconds and remote calls of a submission beside a bare `sbatch`, of a round over 9,000 members of
arrays, and from submission to the program's first line; then submitters that are killed at a
random moment, each repeated once: how many jobs ran twice, or never.
"""

import argparse
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from headway.clock import SystemClock  # noqa: E402
from headway.engine.place import Place  # noqa: E402
from headway.engine.port import Array, Part, Phase, Request  # noqa: E402
from headway.engine.slurm import SlurmEngine  # noqa: E402
from headway.units import MIB  # noqa: E402
from tests.support.slurm import Slurm, slurm, why_none  # noqa: E402

STAMP = "date +%s.%N"


def request(key: str, command: str, *parts: Part) -> Request:
    """A small job."""
    return Request(key, "bench", "all", ("sh", "-c", command), 1, 64 * MIB, parts=parts)


def calls(cluster: Slurm) -> int:
    """Remote calls of clients until now: those that submit, ask for jobs, and cancel."""
    said = cluster.ask("sdiag")
    names = "SUBMIT_BATCH_JOB|JOB_USER_INFO|JOB_INFO|KILL_JOB|CANCEL_JOB_STEP"
    return sum(int(count) for count in re.findall(rf"REQUEST_(?:{names})\s.*?count:(\d+)", said))


def costs(cluster: Slurm, act: Callable[[], object], times: int = 1) -> str:
    """Seconds and remote calls of *act*."""
    before, began_s = calls(cluster), time.monotonic()
    for _ in range(times):
        act()
    took_s = (time.monotonic() - began_s) / times
    return f"{took_s * 1000:.1f} ms, {(calls(cluster) - before) / times:.2f} calls"


def first_line_s(path: Path, began_s: float) -> float:
    """From then until the program began, which writes the time."""
    while not (path.exists() and path.read_text()):
        time.sleep(0.02)
    return float(path.read_text()) - began_s


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    kills = parser.parse_args().kills
    if missing := why_none():
        raise SystemExit(missing)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    (folder / "cluster").mkdir()
    with slurm(folder / "cluster", cpus=2, nodes=("n1", "n2")) as cluster:
        os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
        engine = SlurmEngine(Place(folder / "place"), "bench", SystemClock())
        keys = iter(range(10_000))
        bare = ["sbatch", "--hold", "--job-name=bare", "--mem=64M", "--wrap=true"]
        print("bare sbatch:", costs(cluster, lambda: cluster.ask(*bare), 50))
        cluster.ask("scancel", "--name=bare")
        submit = lambda: engine.submit(request(f"k{next(keys)}", "true"))  # noqa: E731
        print("submission:", costs(cluster, submit, 50))
        lines: tuple[list[float], list[float]] = ([], [])
        for number in range(8):
            began_s = time.time()
            log = engine.log(engine.submit(request(f"line{number}", STAMP)).key)
            lines[0].append(first_line_s(log, began_s))
            out, began_s = folder / f"bare{number}", time.time()
            cluster.ask("sbatch", "--mem=64M", f"--output={out}", f"--wrap={STAMP}")
            lines[1].append(first_line_s(out, began_s))
        ours_s, bare_s = (statistics.median(each) for each in lines)
        print(f"submission to first line: {ours_s:.2f} s; bare sbatch {bare_s:.2f} s")
        for number in range(9):
            engine.submit(request(f"array{number}", "true", Array(1000, 1)))
        print(f"a round over {len(engine.jobs())} jobs:", costs(cluster, engine.jobs, 5))
        wide = [(f"array{number}", 0) for number in range(9)]
        print("cancel 9 arrays of 1,000:", costs(cluster, lambda: engine.cancel(wide)))
        for key, _ in wide:
            engine.forget(key)
        cluster.ask("scontrol", "update", "PartitionName=all", "State=DOWN")
        for number in range(50):
            each = tuple(request(f"of{number}-{at}", "true") for at in range(200))
            engine.submit(request(f"many{number}", "", Array(200, None, each)))
        for _ in range(2):  # files of jobs that wait are looked at anew at the second look, too
            engine.jobs()
        print(
            f"a round over {len(engine.jobs())}, of 10,000 a key each:",
            costs(cluster, engine.jobs, 5),
        )
        cluster.ask("scontrol", "update", "PartitionName=all", "State=UP")
        cluster.ask("scancel", "--name=bench", "--state=PENDING")
        print(killed(engine, folder / "place", kills))


def killed(engine: SlurmEngine, place: Path, tries: int) -> str:
    """Submitters killed at a random moment, each repeated once."""
    requests = [request(f"kill{each}", "echo once >> count; true") for each in range(tries)]
    for each in requests:
        if (pid := os.fork()) == 0:
            engine.submit(each)
            os._exit(0)
        time.sleep(random.uniform(0.0, 0.04))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        engine.submit(each)
    ours = {each.key for each in requests}
    while any(job.phase is not Phase.ENDED for job in engine.jobs() if job.key in ours):
        time.sleep(1.0)
    ran = [(place / each.key / "count").read_text().count("once") for each in requests]
    return f"{tries} killed submitters: {sum(n > 1 for n in ran)} twice, {ran.count(0)} never"


if __name__ == "__main__":
    main()
