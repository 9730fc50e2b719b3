"""Many short jobs submitted at once on the default site: do all end, how fast, and at what cost?

    python benchmarks/burst.py [--jobs 100] [--runtime auto] [--reference 5] [--patience 600]

A fresh home, one node, and jobs that end as soon as they begin. Prints how many ended well, how
many were wedged (a lease and no flow process at the end of the patience), runs a second, and the
processor time of a run in its flow process, in the worker and in the server. Below it, on the
same server, Prefect's own process worker with a flow that starts the same program.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
import submit_latency  # noqa: E402 - beside this file

from tests.support.burst import Burst, cpu_by_process, cpu_s, run_burst, settings_of  # noqa: E402
from tests.support.site import LiveSite, live_site  # noqa: E402


def main() -> None:
    """Bring a site up, submit the jobs, wait, print one row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--reference", type=int, default=5, help="runs of the stock worker")
    parser.add_argument("--patience", type=float, default=600.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", asked.runtime) as site:
            time.sleep(5)  # what a start does goes on for a while
            _show(run_burst(site, asked.jobs, asked.patience, _say))
            if asked.reference:
                _show_stock(site, asked.reference)


def _show(burst: Burst) -> None:
    print(
        f"| ended well of {burst.jobs} | wedged | slowest start | runs/s "
        "| flow | worker | server | all, s/run |"
    )
    print("|---|---|---|---|---|---|---|---|")
    each = {name: used_s / max(burst.ended, 1) for name, used_s in burst.cpu_s.items()}
    print(
        f"| {burst.well} | {len(burst.wedged)} | {burst.slowest_start_s:.1f} s "
        f"| {burst.ended / burst.took_s:.2f} "
        f"| {each['flows']:.2f} | {each['worker']:.2f} | {each['server']:.2f} "
        f"| {sum(each.values()):.2f} |"
    )


def _show_stock(site: LiveSite, runs: int) -> None:
    """The reference: processor time of a stock worker, its flow processes and the server."""
    stock, settings = submit_latency.Site(site.home), settings_of(site)
    stock.env, stock.url = site.env, f"{site.url}/api"
    with submit_latency.stock_worker(stock) as (pid, deployment):
        worker = psutil.Process(pid)
        begun_s, server_s = cpu_s(worker), cpu_by_process(settings)["server"]
        began_s = time.monotonic()
        started = [
            stock.submit(deployment, command=["true"], report=f"{site.home}/stock-{number}")[0]
            for number in range(runs)
        ]
        for run in started:
            stock.finish(run)
        took_s = time.monotonic() - began_s
        own_s = cpu_s(worker) - begun_s
        server_s = cpu_by_process(settings)["server"] - server_s
    print(
        f"Prefect's process worker, {runs} runs at once: {runs / took_s:.2f} runs/s, "
        f"flow and worker {own_s / runs:.2f}, server {server_s / runs:.2f}, "
        f"all {(own_s + server_s) / runs:.2f} s/run"
    )


def _say(words: str) -> None:
    print(words, end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
