"""The four promises, looked for on a live site while and after things are killed.

The jobs are programs that say themselves when they start, when they end, and
whether they met another one of the same run: see `PROGRAM`.
"""

import fcntl
import json
import os
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp

from headway.errors import LedgerUnreachable, SiteUnreachable
from headway.ledger import Ledger
from headway.ledger.records import RunRecord
from headway.model.run import ExitKind, RunState
from headway.node.flowlock import live_flow
from headway.settings import Settings
from tests.support.site import LiveSite, sleeper

PROGRAM = """\
import fcntl, json, os, sys, time
folder, seconds, run = sys.argv[1], float(sys.argv[2]), os.environ["HEADWAY_RUN_ID"]
lock = open(f"{folder}/{run}.lock", "a")
def say(word):
    with open(f"{folder}/said", "a") as file:
        file.write(json.dumps([run, os.environ["HEADWAY_ATTEMPT"], word]) + "\\n")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("twice")
say("start")
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.1)
say("end")
"""
LEFT_S = 60.0
"""Nothing may be left so long after the last actor is back."""
_SEEN = "/srv" if os.geteuid() == 0 else None
"""Where all programs see the same: of /tmp each has its own, where headway may mount."""
_ENDS = {ExitKind.OK: "COMPLETED", ExitKind.CANCELLED: "CANCELLED"}


class Watched:
    """Jobs on a live site of the process runtime, and what they say of themselves."""

    def __init__(self, site: LiveSite) -> None:
        """On *site*, whose programs may run as another user."""
        self.site = site
        self.settings = Settings(home=site.home, port=site.port, node=site.env["HEADWAY_NODE"])
        self._folder = folder = Path(mkdtemp(prefix="headway-said-", dir=_SEEN))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o1777)
        (folder / "said").touch()
        (folder / "said").chmod(0o666)
        self.runs: list[str] = []

    def submit(self, name: str, seconds: float, key: str | None = None) -> str:
        """Submit one job, as often as the server needs to hear it while it is killed."""
        job = sleeper() | {
            "name": name,
            "command": ["python", "-c", PROGRAM, str(self._folder), str(seconds)],
            "resources": {"host_memory": "32MiB", "cpus": 0.05},
            "max_runtime": "30m",
        }
        deadline = time.monotonic() + 120.0
        while True:
            try:
                with self.site.server() as server:
                    run_id = server.submit({"job": job}, name=name, tags=[], key=key or name).run_id
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
                continue
            self.runs.append(run_id)
            return run_id

    def ledger(self) -> Ledger:
        """The site's ledger; to be closed."""
        return Ledger.open(self.site.env.get("HEADWAY_LEDGER_URL") or self.site.ledger_url())

    def until_ended(self, run_ids: Iterable[str], patience_s: float) -> dict[str, RunRecord]:
        """Wait until these have ended by the ledger, or the patience is over; what it has."""
        wanted, deadline = list(run_ids), time.monotonic() + patience_s
        while True:
            found = self._records(wanted)
            over = sum(each.state is RunState.ENDED for each in found.values()) == len(wanted)
            if over or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

    def _records(self, run_ids: list[str]) -> dict[str, RunRecord]:
        """What the ledger has; a database that was just killed may take a while to answer."""
        deadline = time.monotonic() + LEFT_S
        while True:
            try:
                ledger = self.ledger()
                try:
                    return ledger.runs.of(run_ids)
                finally:
                    ledger.close()
            except LedgerUnreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def alive(self, run_id: str) -> bool:
        """Whether the program of a run that has begun lives: then nobody else gets its lock."""
        if not any(run == run_id and word == "start" for run, _, word in self.said()):
            return False  # it must not find the lock taken
        with (self._folder / f"{run_id}.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def broken(
        self, run_ids: list[str], within_s: float = LEFT_S, ended: ExitKind = ExitKind.OK
    ) -> list[str]:
        """Which promises are broken for runs that should have *ended* so; empty where none is.

        What may still be cleaned up has *within_s* for it.
        """
        records = self._records(run_ids)
        found = [f"lost: {run_id} is not in the ledger" for run_id in set(run_ids) - set(records)]
        for run_id, record in records.items():
            if record.exit is None or record.exit.kind is not ended:
                found.append(f"lost: {run_id} is {record.state} {record.exit} {record.reason!r}")
        said = self.said()
        found += [f"twice: {run} attempt {number}" for run, number, word in said if word == "twice"]
        starts = [(run, number) for run, number, word in said if word == "start"]
        found += [f"twice: {each} started {n} times" for each in set(starts)
                  if (n := starts.count(each)) > 1]  # fmt: skip
        deadline = time.monotonic() + within_s
        while (later := self._left_as_seen(records)) and time.monotonic() < deadline:
            time.sleep(1.0)
        return found + later

    def said(self) -> list[tuple[str, str, str]]:
        """What the programs said: run, attempt, word."""
        lines = (self._folder / "said").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def _left_as_seen(self, records: dict[str, RunRecord]) -> list[str]:
        """What is left; that nobody could look is amiss, too."""
        try:
            return self._left(records)
        except (LedgerUnreachable, SiteUnreachable) as error:
            return [f"left: nobody could look, for {error}"]

    def _left(self, records: dict[str, RunRecord]) -> list[str]:
        """What is left behind of these runs, and where Prefect says something else."""
        ledger = self.ledger()
        try:
            leases = [each for each in ledger.leases.live() if each.run_id in records]
        finally:
            ledger.close()
        found = [f"left: lease {each.lease_id} of {each.run_id}" for each in leases]
        for run_id in records:
            there = list((self.site.home / "containers").glob(f"*{run_id}*"))
            found += [f"left: {each.name}" for each in there]
            if live_flow(self.settings.state_dir, run_id) is not None:
                found.append(f"left: the flow process of {run_id}")
        return found + self._wrong_in_prefect(records)

    def _wrong_in_prefect(self, records: dict[str, RunRecord]) -> list[str]:
        found = []
        with self.site.server() as server:
            for run_id, record in records.items():
                if record.exit is None:
                    continue
                wanted = _ENDS.get(record.exit.kind, "FAILED")
                seen = server.run(run_id).state_type
                if seen != wanted:
                    found.append(f"Prefect says {seen} of {run_id}, the ledger {wanted}")
        return found


def counted(broken: Iterable[str]) -> str:
    """How often which promise is broken, as a row says it."""
    kinds = Counter(each.split(":")[0].split(" says")[0] for each in broken)
    return (
        f"{kinds['lost']} lost, {kinds['twice']} twice, {kinds['left']} left behind, "
        f"{kinds['Prefect']} wrong in Prefect"
    )
