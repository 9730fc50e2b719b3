"""`headway doctor --invariants`: whether ledger, node and Prefect agree; `--fix` mends.

Here the sides are read; `admin.inspection.invariants` compares them. What mends is the
janitor of this node: one more of its rounds, in this process.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headway.admin.inspection.invariants import confirmed, look
from headway.admin.round_here import round_here
from headway.durable import UNFINISHED
from headway.errors import SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.inspection import (
    Finding,
    Kind,
    Lying,
    Place,
    SeenContainer,
    SeenNode,
    SeenState,
    Snapshot,
)
from headway.model.prefect_view import PrefectView
from headway.model.run import GRANTED
from headway.node.daemon import worker_daemon
from headway.node.flowlock import LiveFlows
from headway.node.janitor import Janitor
from headway.node.prune import is_run_id
from headway.prefect.client import PrefectServer
from headway.prefect.listed_run import ListedRun
from headway.run.here import forget_checkpoint
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState
from headway.runtime.run_groups import RunGroups
from headway.scheduler.queue_janitor import QueueJanitor
from headway.site import Site

_LOOK_AGAIN_S = 6.0
"""Longer than a round of the janitor: what it mends by itself is not called broken."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, and what could not be looked at."""

    findings: list[Finding]
    unknown: list[str]
    """What should have been read and was not: nothing is said of it."""
    elsewhere: list[str]
    """Other nodes: their containers and disks are seen from there alone."""
    worker_lives: bool
    """The janitor of this node is a part of its worker."""

    @property
    def broken(self) -> list[Finding]:
        """What is not merely under way."""
        return [each for each in self.findings if not each.under_way]


def examine(site: Site, server: PrefectServer) -> Examination:
    """Look at everything; what looks broken is looked at a second time.

    Raises:
        LedgerError: Without the ledger nothing can be said.
    """
    first = _look_once(site, server)
    if not first.broken:
        return first
    site.clock.sleep(_LOOK_AGAIN_S)
    second = _look_once(site, server)
    return replace(second, findings=confirmed(first.findings, second.findings))


def mend(site: Site, server: PrefectServer, found: Examination) -> Examination:
    """Let this node's janitor mend what it can at once; what is left then.

    In three rounds: what the first one stops, the second one releases and tells
    Prefect of, and the third one sees acknowledged.
    """
    janitors = (Janitor(site), QueueJanitor(site))
    told = {Kind.PREFECT, Kind.UNTOLD}
    of_runs = {each.subject for each in found.findings if each.kind in told}
    with suppress(RuntimeFailure):  # said among what is unknown; nothing is judged without it
        for _ in range(_ROUNDS):
            for janitor in janitors:
                _round(site, server, janitor, of_runs)
    if any(each.kind is Kind.PORT for each in found.broken):
        site.ledger.leases.forget_stray_ports()
    for each in found.broken:
        kind, _, run_id = each.subject.partition(" ")
        if each.kind is Kind.FOLDER and kind == "checkpoint":
            forget_checkpoint(site.settings, run_id)
    return examine(site, server)


def _round(site: Site, server: PrefectServer, janitor: Janitor, called: set[str]) -> None:
    runs = janitor.unsettled(called)
    round_here(site, server, janitor, runs, _starting(site, runs))
    janitor.wait_for_stops()


def mended(before: Examination, after: Examination) -> list[Finding]:
    """What was broken *before*, and is not found *after* any more."""
    left = {(each.kind, each.subject) for each in after.findings}
    return [each for each in before.broken if (each.kind, each.subject) not in left]


def _look_once(site: Site, server: PrefectServer) -> Examination:
    unknown: list[str] = []
    here = _here(site, unknown)
    named = {each.name for each in here.lying} | here.flows
    named |= {each.run_id for each in here.containers or ()}
    ledger = site.ledger.inspection.read({each for each in named if is_run_id(each)})
    if ledger.ends_beyond:
        unknown.append(f"what Prefect says of the {ledger.ends_beyond} oldest runs that have ended")
    states: dict[str, SeenState] = {}
    try:
        asked = [run_id for run_id in ledger.runs if is_run_id(run_id)]
        found = server.these(asked)
        now = site.clock.now()
        states = {run_id: _state(found.get(run_id), now) for run_id in asked}
    except SiteUnreachable as error:
        unknown.append(f"what Prefect says of the runs: {error}")
    silent = sum(each.view is PrefectView.UNKNOWN for each in states.values())
    if silent:
        unknown.append(f"what Prefect says of {silent} run(s): it gives no state of them")
    others = [each.name for each in ledger.nodes if each.name != site.settings.node]
    worker = worker_daemon(site.settings)
    worker_lives = worker.process() is not None and not worker.frozen()
    return Examination(look(Snapshot(ledger, here, states)), unknown, others, worker_lives)


def _here(site: Site, unknown: list[str]) -> SeenNode:
    """This node; what could not be read of it goes to *unknown*."""
    settings, containers = site.settings, None
    try:
        containers = tuple(
            SeenContainer(
                each.name,
                each.run_id,
                each.attempt,
                live=each.state is not ContainerState.EXITED,
                since=each.ended_at or each.started_at,
            )
            for each in site.runtime.containers()
        )
    except RuntimeFailure as error:
        unknown.append(f"the containers of {settings.node}: {error}")
    flows = frozenset(LiveFlows(settings.state_dir, site.clock).now())
    return SeenNode(settings.node, containers, flows, tuple(lying(site, unknown)))


def _state(run: ListedRun | None, now: datetime) -> SeenState:
    if run is None:
        return SeenState(PrefectView.MISSING)
    for_s = (now - run.state_at).total_seconds() if run.state_at is not None else 0.0
    return SeenState(PrefectView.of(run.state_type, for_s), run.state_at)


def _starting(site: Site, runs: Iterable[RunRecord]) -> frozenset[str]:
    """Runs whose flow process the node's worker may be starting: a worker that lives says not."""
    if worker_daemon(site.settings).process() is not None:
        return frozenset(run.run_id for run in runs if run.state in GRANTED)
    claims = site.ledger.leases.unstarted(site.settings.node)
    return frozenset(lease.run_id for lease in claims)


_UNFINISHED = (UNFINISHED, ".gone-")


def lying(site: Site, unknown: list[str]) -> list[Lying]:
    """Folders and control groups of this node; what could not be read goes to *unknown*."""
    home = site.settings.home
    found: list[Lying] = []
    for parent, place in (
        (home / "containers", None),
        (site.settings.secrets_dir, Place.SECRETS),
        (site.settings.work_dir, Place.WORK),
        (site.settings.runs_dir, Place.RUN),
        (site.settings.cache_dir / "sets", Place.DATA_SET),
        (site.settings.cache_dir / "tmp", Place.PARTIAL),
    ):
        try:
            found += _below(parent, place)
        except OSError as error:
            unknown.append(f"what lies in {parent}: {error.strerror}")
    return [*found, *_groups(site)]


def _below(parent: Path, place: Place | None) -> Iterator[Lying]:
    """The folders in *parent*; where they have no *place*, those alone that are unfinished."""
    try:
        entries = sorted(os.scandir(parent), key=lambda each: each.name)
    except FileNotFoundError:
        return
    for each in entries:
        if not each.is_dir(follow_symlinks=False):
            continue
        try:
            changed_at = datetime.fromtimestamp(each.stat(follow_symlinks=False).st_mtime, UTC)
        except FileNotFoundError:  # it was removed just now
            continue
        if each.name.startswith(_UNFINISHED):
            yield Lying(Place.UNFINISHED, f"{parent.name}/{each.name}", changed_at)
        elif place is not None:
            yield Lying(place, each.name, changed_at)
        if place is Place.RUN and Path(each, "checkpoint").is_dir():
            yield Lying(Place.CHECKPOINT, each.name, changed_at)


def _groups(site: Site) -> list[Lying]:
    """Control groups of this site's containers."""
    return [Lying(Place.CGROUP, name, None) for name in sorted(RunGroups(site.site_id).left())]
