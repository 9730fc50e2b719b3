"""What people who follow one log cost: `python benchmarks/followers.py --followers 10`.

A node writes a log of some lines a second; the gateway, in a process of its own, asks the node's
file server for it, in another one. Printed is the processor time of both, by the second.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.gateway.tokens import issue
from headway.ledger import Ledger
from headway.model.access import Scope
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.node.file_server import serve_on
from headway.run.here import log_path
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.support import postgresql
from tests.support.api import serving
from tests.support.leading import admit_in_term

RUN = "0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11"
JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


def site_of(folder: Path, node: str) -> Site:
    """The home of *node*, on the ledger that all of them share."""
    home = folder / node
    (home / "state").mkdir(parents=True, exist_ok=True)
    url = SecretStr((folder / "ledger.url").read_text())
    settings = Settings(home=home, ledger_url=url, node=node, runtime="process")
    return Site(settings, SystemClock(), Ledger.open)


def be_node(folder: Path, ready: "multiprocessing.Queue[str]") -> None:
    """Be the node with the run."""
    site = site_of(folder, "left")
    node = Node("left", "gpu", Capacity(8.0, 64 * GIB))
    site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    site.ledger.runs.enqueue(
        RUN, JOB, name="digits", owner="ada", team="vision", pool="gpu", priority=0,
        submitted_at=at,
    )  # fmt: skip
    lease = admit_in_term(site.ledger, RUN, "left", Demand(GIB), ttl_s=900.0)
    assert isinstance(lease, Lease)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    serve_on(site, "127.0.0.1", secured=True)
    ready.put("node")
    threading.Event().wait()


def be_gateway(folder: Path, ready: "multiprocessing.Queue[str]") -> None:
    """Be the gateway."""
    with serving(site_of(folder, "head")) as url:
        ready.put(url)
        threading.Event().wait()


def main() -> None:
    """Start both, measure, and end them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--lines-per-s", type=float, default=5.0)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, postgresql.server() as server:
        folder = Path(name)
        (folder / "ledger.url").write_text(postgresql.new_database(server))
        ready: multiprocessing.Queue[str] = context.Queue()
        processes = {}
        for target in (be_node, be_gateway):
            processes[target.__name__] = context.Process(target=target, args=(folder, ready))
            processes[target.__name__].start()
            url = ready.get()
        measure(asked, folder, url, {key: each.pid or 0 for key, each in processes.items()})
        for each in processes.values():
            each.kill()
            each.join()


def measure(asked: argparse.Namespace, folder: Path, url: str, pids: dict[str, int]) -> None:
    """Let people follow, and print what it cost."""
    head = site_of(folder, "head")
    token, _ = issue(
        head.ledger, user="ada", team="vision", scopes={Scope.WATCH}, lifetime_s=3600.0, actor="me"
    )
    path = log_path(head.settings.model_copy(update={"home": folder / "left"}), RUN, 1)
    path.parent.mkdir(parents=True)
    path.touch()
    late_s: list[float] = []

    def follow() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with (
            suppress(httpx.RemoteProtocolError),  # the gateway is ended under it
            httpx.Client(headers=headers, timeout=90) as client,
            client.stream("GET", f"{url}/v1/runs/{RUN}/log", params={"follow": True}) as answer,
        ):
            for line in answer.iter_lines():
                late_s.append(time.monotonic() - float(line))  # noqa: PERF401 - as each comes

    for _ in range(asked.followers):
        threading.Thread(target=follow, daemon=True).start()
    time.sleep(3.0)
    before = {key: sum(psutil.Process(pid).cpu_times()[:2]) for key, pid in pids.items()}
    for _ in range(round(asked.seconds * asked.lines_per_s)):
        with path.open("a") as log:
            log.write(f"{time.monotonic()}\n")
        time.sleep(1 / asked.lines_per_s)
    for key, pid in pids.items():
        used = (sum(psutil.Process(pid).cpu_times()[:2]) - before[key]) / asked.seconds
        print(f"{key.removeprefix('be_'):8} {used:.3f} processor-s a second")
    late_s.sort()
    print(
        f"{len(late_s)} lines read, median {late_s[len(late_s) // 2]:.2f} s after, "
        f"longest {late_s[-1]:.2f} s"
    )


if __name__ == "__main__":
    main()
