"""`headway doctor --invariants`: whether ledger, node and Prefect agree.

Here the sides are read; `admin.inspection.invariants` compares them.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from headway.admin.inspection.invariants import confirmed, look
from headway.errors import SiteUnreachable
from headway.model.inspection import (
    Finding,
    SeenContainer,
    SeenNode,
    SeenState,
    Snapshot,
)
from headway.model.prefect_view import PrefectView
from headway.node.daemon import worker_daemon
from headway.node.flowlock import LiveFlows
from headway.node.prune import is_run_id
from headway.prefect.client import PrefectServer
from headway.prefect.listed_run import ListedRun
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState
from headway.site import Site

_LOOK_AGAIN_S = 6.0
"""Longer than a round of the janitor: what it mends by itself is not called broken."""


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


def _look_once(site: Site, server: PrefectServer) -> Examination:
    unknown: list[str] = []
    here = _here(site, unknown)
    named = here.flows | {each.run_id for each in here.containers or ()}
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
    return SeenNode(settings.node, containers, flows)


def _state(run: ListedRun | None, now: datetime) -> SeenState:
    if run is None:
        return SeenState(PrefectView.MISSING)
    for_s = (now - run.state_at).total_seconds() if run.state_at is not None else 0.0
    return SeenState(PrefectView.of(run.state_type, run.state_name, for_s), run.state_at)
