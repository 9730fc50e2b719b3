"""A node of two is frozen, removed from the site and woken: is a run ever alive twice?

    python benchmarks/faults/frozen_nodes.py [--times 50] [--ttl 10] [--what machine]

--what machine: everything of the node stands still, containers too, as in a machine that sleeps;
measured is how long the old container lives after it woke. --what flows: worker and flow
processes stand still, and the guard goes on: the node cannot be removed while it renews.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support import postgresql  # noqa: E402 - from the project's root
from tests.support.nodes import StubNode, several_nodes  # noqa: E402
from tests.support.promises import Watched  # noqa: E402
from tests.support.site import LiveSite, wait_for  # noqa: E402

LONG_S = 3_600.0


def main() -> int:
    """Freeze, remove, wake; print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--ttl", type=float, default=10.0, help="seconds a lease lives")
    parser.add_argument("--what", choices=["machine", "flows"], default="machine")
    asked = parser.parse_args()
    if reason := postgresql.why_none():
        print(f"| node frozen, removed, woken ({asked.what}) | 50, never two alive | {reason} |")
        return 1
    env = {"HEADWAY_LEASE_TTL_S": str(asked.ttl), "HEADWAY_ADDRESS": "127.0.0.1"}
    nodes = {"head": StubNode(0, env=env), "far": StubNode(0, env=env)}
    lived, twice = [], []
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as scratch:
        Path(scratch).chmod(0o711)
        with (
            postgresql.server() as server,
            several_nodes(Path(scratch), server, nodes) as sites,
        ):
            for number in range(asked.times):
                watched = Watched(sites["head"], Path(scratch) / f"said-{number}")
                once = _machine if asked.what == "machine" else _flows
                lived.append(once(sites, watched, number))
                twice += [word for _, _, word in watched.said() if word == "twice"]
                print(f"\r{number + 1} of {asked.times}", end="", file=sys.stderr, flush=True)
    print(
        f"| node frozen, removed, woken ({asked.what}) | 50, never two alive; dead within 1 s of "
        f"waking | {asked.times}: {len(twice)} met another one, the old container lived "
        f"{max(lived):.1f} s at most after waking |"
    )
    return int(bool(twice))


def _begun_far(sites: dict[str, LiveSite], watched: Watched, number: int) -> str:
    """A run that trains on the node that will be frozen."""
    sites["head"].run("node", "drain", "head")
    run_id = watched.submit(f"frozen-{number}", LONG_S)
    wait_for(lambda: _programs(sites["far"], run_id), sites["far"].worker_log)
    sites["head"].run("node", "resume", "head")
    return run_id


def _machine(sites: dict[str, LiveSite], watched: Watched, number: int) -> float:
    head, far = sites["head"], sites["far"]
    run_id = _begun_far(sites, watched, number)
    frozen = _stop(_all_of(far))
    try:
        removed = wait_for(lambda: _removed(head), lambda: str(head.run("node", "list").stdout))
        assert removed
        wait_for(lambda: _programs(head, run_id), head.worker_log)
    finally:
        woke = time.monotonic()
        _wake(frozen)
    wait_for(lambda: not _programs(far, run_id), lambda: f"{run_id} is alive twice")
    lived_s = time.monotonic() - woke
    head.run("cancel", run_id)
    head.until(run_id, "Cancelled")
    wait_for(
        lambda: "far" in {each["node"] for each in head.json("node", "list")},
        lambda: f"the node did not come back: {far.worker_log()}",
    )
    return lived_s


def _flows(sites: dict[str, LiveSite], watched: Watched, number: int) -> float:
    head, far = sites["head"], sites["far"]
    run_id = _begun_far(sites, watched, number)
    frozen = _stop([far.worker_pid(), far.flow_pid(run_id)])
    try:
        time.sleep(3 * float(far.env["HEADWAY_LEASE_TTL_S"]))  # what would expire has expired
        assert not _programs(head, run_id), "it began elsewhere though its container is alive"
    finally:
        _wake(frozen)
    head.run("cancel", run_id)
    head.until(run_id, "Cancelled")
    return 0.0


def _removed(head: LiveSite) -> bool:
    return head.run("node", "remove", "far").returncode == 0


def _all_of(site: LiveSite) -> list[int]:
    """Every process that belongs to the node's home, containers too."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            env = process.environ()
            if env.get("HEADWAY_HOME") == str(site.home) or _is_its_program(site, env):
                found.append(process.pid)
    return found


def _is_its_program(site: LiveSite, env: dict[str, str]) -> bool:
    return any(str(site.home) in each for name, each in env.items() if name.startswith("HEADWAY_"))


def _programs(site: LiveSite, run_id: str) -> list[int]:
    """Processes of the run's program on the node."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            env = process.environ()
            live = process.status() != psutil.STATUS_ZOMBIE
            if live and env.get("HEADWAY_RUN_ID") == run_id and _is_its_program(site, env):
                found.append(process.pid)
    return found


def _stop(pids: list[int]) -> list[int]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return pids


def _wake(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
