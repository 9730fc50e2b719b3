"""Memory that is promised and idle, on a whole site: lent, taken back in time, and lent again.

The site's processes see a machine of 8 GiB whose free memory the test says.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from headway.ledger.database import open_engine
from headway.policy.lending import LEND_AFTER_S
from headway.units import GIB
from tests.support.site import (
    LiveSite,
    free_port,
    let_through,
    processes_of,
    sleeper,
    wait_for,
)

pytestmark = [pytest.mark.prefect, pytest.mark.long]

BORROWS = """\
import os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ["HEADWAY_CHECKPOINT"], "kept")
if kept.exists():
    sys.exit(print("went on from", kept.read_text(), flush=True))
def leave(*_):
    kept.write_text("its checkpoint")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
print("works", flush=True)
time.sleep(600)
"""


class SmallMachine(LiveSite):
    """A site whose processes see the memory of a machine that the test makes up."""

    def __init__(self, home: Path, meminfo: Path) -> None:
        super().__init__(home, "process", free_port())
        self.meminfo = meminfo

    def command(self, before: Any, arguments: Any) -> Any:
        see = f'mount --bind {self.meminfo} /proc/meminfo && exec "$0" "$@"'
        return super().command(["unshare", "--mount", "sh", "-c", see, *before], arguments)

    def has_free(self, free_bytes: int) -> None:
        """Of its 8 GiB so much can be given to programs; in place, where it is mounted."""
        figures = {"MemTotal": 8 * GIB, "MemFree": free_bytes, "MemAvailable": free_bytes}
        figures |= dict.fromkeys(("Buffers", "Cached", "Shmem", "Active", "Inactive", "Slab"), 0)
        lines = [f"{name}: {value // 1024:12} kB\n" for name, value in figures.items()]
        self.meminfo.write_text("".join(lines))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SmallMachine]:
    if os.geteuid() != 0:
        pytest.skip("only root can show a process other figures of the machine")
    made = SmallMachine(tmp_path / "site", tmp_path / "meminfo")
    let_through(tmp_path)
    made.has_free(7 * GIB)
    try:
        started = made.run("up")
        assert started.returncode == 0, started.stderr + started.stdout
        yield made
    finally:
        ended = made.run("down", "--stop", "--yes")
    assert ended.returncode == 0, ended.stderr + ended.stdout


def has_had_it_long(site: LiveSite, run_id: str) -> None:
    """Let the run have had its lease for as long as what it leaves of it is lent then."""
    engine = open_engine(site.ledger_url())
    ago = f"granted_at - INTERVAL '{LEND_AFTER_S + 60:.0f} seconds'"
    try:
        with engine.begin() as connection:
            sql = f"UPDATE lease SET granted_at = {ago} WHERE run_id = :run_id"
            connection.execute(text(sql), {"run_id": run_id})
    finally:
        engine.dispose()


def test_a_run_borrows_leaves_when_its_owner_needs_the_memory_and_goes_on_later(
    site: SmallMachine, tmp_path: Path
) -> None:
    wants = {"host_memory": "4GiB", "cpus": 0.1}
    owner = site.submit(tmp_path, **sleeper(2400, name="owner", resources=wants))
    site.until_training(owner)
    asked = {
        "name": "borrower",
        "command": ["python", "-c", BORROWS],
        "resources": wants,
        "preemptible": True,
        "stop_grace": "10s",
    }
    borrower = site.submit(tmp_path, **asked)
    site.until(borrower, "AwaitingHeadroom")  # what the owner has is not idle yet, for all we know
    has_had_it_long(site, owner)
    site.until(borrower, "Running")
    assert "lent" in json.dumps(site.show(borrower))
    wait_for(lambda: "works" in site.run("logs", borrower).stdout, site.worker_log)
    assert site.show(owner)["state"] == "Running"

    site.has_free(3 * GIB // 4)  # the owner grows into its promise
    view = site.until(borrower, "AwaitingHeadroom")
    (first,) = [each for each in view["attempts"] if each["exit"]]
    assert first["exit"]["kind"] == "preempted"
    assert "768 MiB were left on the node" in first["exit"]["message"]
    assert site.show(owner)["state"] == "Running"

    site.has_free(7 * GIB)
    again = site.until(borrower, "Completed", "Failed")
    assert (again["state"], again["attempt"]) == ("Completed", 2), again
    assert "went on from its checkpoint" in site.run("logs", borrower).stdout
    kept = site.show(owner)
    assert (kept["state"], kept["attempt"]) == ("Running", 1)

    # What waits for the owner's room is not started there when `down` ends the owner.
    follower = site.submit(tmp_path, **sleeper(2400, name="follower", resources=wants))
    site.until(follower, "AwaitingHeadroom")
    assert site.json("down", "--stop", "--yes")["requeued"] == [owner]
    wait_for(lambda: not processes_of(site.home), lambda: str(processes_of(site.home)))
