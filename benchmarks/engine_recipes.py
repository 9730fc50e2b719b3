"""What is asked for in the second run of ten recipes, beside what it used, on a real Slurm.

    python benchmarks/engine_recipes.py [--minutes 10]      # root; slurm-wlm, munge; twice as long

Ten programs, each of a size and a duration of its own, which differ by a few per cent each time.
All ten run once, by rounds of a follower over a real ledger without Prefect, then again: memory
and time that Slurm is asked for, over the peak and the run time that the wrapper measured.
"""

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.engine_site import Follower, own_slurm  # noqa: E402
from headway.engine.port import Request, Submitted  # noqa: E402
from headway.engine.slurm_options import minutes  # noqa: E402
from headway.model.run import ExitKind  # noqa: E402
from headway.units import MIB, MINUTE_S  # noqa: E402
from tests.support.postgresql import with_ledger  # noqa: E402

SIZES_MIB = (64, 96, 128, 192, 256, 320, 384, 448, 512, 640)
PROGRAM = """\
import random, time
held = bytearray(int({mib} * 1048576 * random.uniform(0.97, 1.03)))
held[::4096] = bytes([1]) * len(held[::4096])
time.sleep({seconds} * random.uniform(0.95, 1.05))
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    least_s = parser.parse_args().minutes * MINUTE_S
    with own_slurm() as (_, folder, login):
        follower = Follower(with_ledger(folder), login)
        asked: dict[str, Request] = {}
        submit = follower.jobs.engine.submit

        def noted(request: Request) -> Submitted:
            asked[request.key] = request
            return submit(request)

        follower.jobs.engine.submit = noted  # type: ignore[method-assign]
        for turn in (1, 2):
            for number, mib in enumerate(SIZES_MIB):
                program = PROGRAM.format(mib=mib, seconds=least_s * (1 + number / 20))
                follower.enqueue(
                    f"recipe{number}.{turn}", "", name=f"recipe{number}",
                    command=["python3", "-c", program], resources={"cpus": 1},
                )  # fmt: skip
            runs = [f"recipe{number}.{turn}" for number in range(len(SIZES_MIB))]
            follower.until_ended(runs, least_s * 4)
        ratios: tuple[list[float], list[float]] = ([], [])
        print("| recipe | asked, peak, MiB | asked, took, s | ratios |\n|---|---|---|---|")
        for run, record in sorted(follower.site.ledger.runs.of(runs).items()):
            keys = [key for key in asked if key.startswith(f"{run}-")]
            request = asked[keys[-1]]
            used = record.measurement
            assert used is not None
            peak, took_s = used.host_peak_bytes or 0, used.runtime_s or 0.0
            assert request.time_limit_s is not None
            given_s = minutes(request.time_limit_s, request.grace_s) * MINUTE_S
            found = request.host_memory_bytes / peak, given_s / took_s
            for each, ratio in zip(ratios, found, strict=True):
                each.append(ratio)
            well = record.exit is not None and record.exit.kind is ExitKind.OK
            print(
                f"| {run}, {len(keys)} tries, {'ok' if well else record.exit} | "
                f"{request.host_memory_bytes / MIB:.0f}, {peak / MIB:.0f} | "
                f"{given_s:.0f}, {took_s:.0f} | {found[0]:.2f}, {found[1]:.2f} |"
            )
        for what, each in zip(("memory", "time"), ratios, strict=True):
            print(f"{what}: asked over used {statistics.median(each):.2f}, at most {max(each):.2f}")


if __name__ == "__main__":
    main()
