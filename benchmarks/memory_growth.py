"""How fast may a program whose job names no memory fill it, and live?

    python benchmarks/memory_growth.py [process] [docker]

A program takes 2.5 GiB from a guess of 1 GiB at each of several rates, three times, on the real
ledger and runtime of this machine. Prints how often it lived, how fast it really was, what it was
granted in the end, and how many steps that took.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headway.ledger.leases import Leases
from headway.units import GIB, MIB, format_size
from tests.integration.test_memory_growth import here, job, ran

RATES = (200.0, 1024.0, 2048.0, 1e6)
"""MiB a second; the last is as fast as one process of this machine can."""
TIMES, MOST_MIB = 3, 2560


def main() -> None:
    """Print the table."""
    print(f"{'runtime':8} {'asked MiB/s':>12} {'took':>6} {'lived':>6} {'granted':>9} {'steps':>6}")
    for kind in sys.argv[1:] or ["process"]:
        for rate in RATES:
            lived, took, granted, steps = 0, 0.0, 0, [0]
            grow = Leases.grow

            def counted(*given: object, _grow: object = grow, _steps: list[int] = steps) -> int:
                _steps[0] += 1
                return _grow(*given)  # type: ignore[operator, no-any-return]

            Leases.grow = counted  # type: ignore[assignment, method-assign]
            for number in range(TIMES):
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder).chmod(0o755)
                    sites = here(Path(folder), kind)
                    site = next(sites)
                    attempt, exit_ = ran(site, number + 1, job(rate, MOST_MIB))
                    lived += exit_.code == 0
                    lease = site.ledger.leases.of_run(attempt.run_id)
                    granted = max(granted, lease.host_memory_bytes if lease else 0)
                    measured = attempt.record.measurement
                    took += (measured.runtime_s or 0.0) if measured else 0.0
                    next(sites, None)
            Leases.grow = grow  # type: ignore[method-assign]
            asked = f"{rate:12.0f}" if rate < 1e5 else f"{'any':>12}"
            print(
                f"{kind:8} {asked} {took / TIMES:5.1f}s {lived:3}/{TIMES} "
                f"{format_size(granted):>9} {steps[0] / TIMES:6.1f}",
                flush=True,
            )
    print(f"a program begins with {format_size(GIB)} and takes {format_size(MOST_MIB * MIB)}")


if __name__ == "__main__":
    main()
