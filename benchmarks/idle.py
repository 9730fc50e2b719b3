"""What a site costs that does nothing, and what of it grows.

    python benchmarks/idle.py --minutes 30

A site of one node is brought up and left alone, beside a stock Prefect server with one stock
worker. Printed are their memory (PSS) and processor time, and what a site has more at the end than
after a minute: memory of each process, rows of each table of its databases, bytes and files below
its home; the rate of the second half is also told for six weeks, where nothing should grow.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import psycopg
from psycopg import sql

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.submit_latency import Site, memory_mib, site_pids, stock_worker
from headway.settings import Settings

SIX_WEEKS_S = 6 * 7 * 86400.0
_TABLES = "SELECT schemaname, relname FROM pg_stat_user_tables"


@contextmanager
def stock_server(home: Path) -> Iterator[int]:
    """A Prefect server as it is installed, with a database file; its pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HEADWAY"))}
    env |= {"PREFECT_HOME": str(home), "DO_NOT_TRACK": "1"}
    command = [str(Path(sys.executable).with_name("prefect")), "server", "start"]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen([*command, "--port", str(port)], env=env, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/api/health").is_success:
                    break
            time.sleep(0.2)
        yield server.pid
    finally:
        server.terminate()
        server.wait()


def rows(url: str) -> Counter[str]:
    """Rows of each table of each database of the site's server."""
    found: Counter[str] = Counter()
    with psycopg.connect(url) as connection:
        names = [name for (name,) in connection.execute("SELECT datname FROM pg_database")]
    for name in names:
        if name in {"template0", "template1"}:
            continue
        with psycopg.connect(url, dbname=name) as connection:
            for schema, table in connection.execute(_TABLES).fetchall():
                count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
                row = connection.execute(count).fetchone()
                found[f"{name}.{table}"] = row[0] if row else 0
    return found


def role(process: psutil.Process) -> str:
    """What tells a process of the site from the others."""
    words = [Path(word).name for word in process.cmdline()]
    told = [word for word in words if not word.startswith(("-", "python"))]
    return " ".join(told[:2])[:40] or process.name()


def seen(site: Site) -> tuple[Counter[str], float]:
    """Figures of *site* by what they are of, and the seconds its processes have had."""
    found, cpu_s = rows(Settings(home=site.home).known_ledger or ""), 0.0
    for pid in site_pids(site.home):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            found[f"KiB of {role(process)}"] += process.memory_full_info().pss // 1024
            times = process.cpu_times()
            cpu_s += times.user + times.system
    files = [path for path in site.home.rglob("*") if path.is_file() and not path.is_symlink()]
    found["files"] = len(files)
    found["KiB of files"] = sum(path.stat().st_size for path in files) // 1024
    return found, cpu_s


@dataclass(frozen=True)
class Idle:
    """What was found: memory, processor time of the site, and what grew at its three looks."""

    site_mib: float
    stock_mib: float
    cores: float
    grown: Mapping[str, tuple[int, int, int, int]]
    """The fourth is what the second half's growth comes to in six weeks."""


def measure(minutes: float) -> Idle:
    """All figures of the report."""
    home = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    stock_home = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    site = Site(home)
    try:
        site.headway("up")
        with stock_server(stock_home) as server, stock_worker(site) as (worker, _):
            time.sleep(60)
            ours, stock = memory_mib(site_pids(home)), memory_mib([server, worker])
        first, cpu_s = seen(site)
        time.sleep(30 * minutes)
        middle, _ = seen(site)
        time.sleep(30 * minutes)
        last, later_cpu_s = seen(site)
    finally:
        site.headway("down", "--stop", "--yes")
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(stock_home, ignore_errors=True)
    weeks = SIX_WEEKS_S / (30 * minutes)
    grown = {
        what: (first[what], middle[what], last[what], round((last[what] - middle[what]) * weeks))
        for what in sorted({*first, *last})
        if last[what] != first[what]
    }
    return Idle(ours, stock, (later_cpu_s - cpu_s) / (60 * minutes), grown)


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    found = measure(parser.parse_args().minutes)
    ratio = found.site_mib / found.stock_mib
    print(f"PSS: {found.site_mib:.0f} MiB ÷ stock {found.stock_mib:.0f} MiB = {ratio:.2f}")
    print(f"processor time: {found.cores:.2%} of a core")
    print("\n| what | after a minute | half | end | in six weeks as in the second half |")
    print("|---|---|---|---|---|")
    for what, counts in found.grown.items():
        print(f"| {what} | {' | '.join(f'{count:,}' for count in counts)} |")


if __name__ == "__main__":
    main()
