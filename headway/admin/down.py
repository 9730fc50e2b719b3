"""Taking a site down on one machine, or a node out of its site."""

import enum
import logging
import math
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from headway.admin.database.own import NoDatabase, start_database
from headway.admin.install import leave_to_systemd
from headway.admin.processes import StartFailed, only_one, start_guard
from headway.admin.supervisor import stop_supervisor
from headway.errors import LeaseLost, LedgerError, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.job_text import stop_grace_s
from headway.model.run import CANCELLED_BY, GRANTED, Exit, ExitKind
from headway.node import daemon as daemons
from headway.node.flowlock import LiveFlows
from headway.node.janitor import Janitor
from headway.node.mending import end_flow
from headway.policy.guard import GuardTimes
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.run.here import container_name
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerState
from headway.settings import Settings
from headway.site import Site
from headway.this_node import os_user
from headway.units import format_duration
from headway.waits import until, waiting_for

Say = Callable[[str], None]
_END_S = 60.0
"""For stopped runs to be gone, beyond their grace time."""
_LOOK_EVERY_S = 0.5
_LEAVE_S = 10.0
"""For a process that was told to leave; then it is killed."""


class AtDown(enum.StrEnum):
    """What becomes of the runs that are under way on a node that goes down."""

    GO_ON = "go_on"
    """Their containers go on under the node's guard; the next worker takes them up."""
    WAIT = "wait"
    """They are waited for; nothing new begins meanwhile."""
    STOP = "stop"
    """Each is stopped with its grace time, and goes back to the queue, to its checkpoint."""


class Halted(TypedDict):
    """What `headway down --json` prints."""

    stopped: list[str]
    """Names of processes."""
    requeued: list[str]
    """Ids of runs that were stopped and wait for another attempt."""
    going_on: list[str] | None
    """Ids of runs whose containers go on; None where the engine does not tell."""


def take_down(
    site: Site, say: Say, then: AtDown, agree: Callable[[list[str]], None] = lambda _: None
) -> Halted:
    """Stop all of it: what runs comes first, then gateway, server and database.

    Scheduler and worker go before: the next run would start in the place of each that ends. What
    waits stays in the queue. Where a container goes on, the guard stays, which renews its lease,
    and with it the site's own database. That stays, too, as long as runs of other nodes go on,
    whose guards would else have to stop them.

    Args:
        site: This machine's.
        say: Is told what happens.
        then: What becomes of the runs here.
        agree: Is told a line of each run that is under way, if any is; raises to keep all as it is.
    """
    settings = site.settings
    if not settings.state_dir.is_dir():  # no home of a site, and none is made of it
        say(f"nothing was running: there is no site in {settings.home}")
        return Halted(stopped=[], requeued=[], going_on=[])
    leave_to_systemd(
        settings, "`systemctl stop 'headway-*'` stops it, `headway install --remove` for good"
    )
    elsewhere = _elsewhere(site)
    if lines := [*_under_way(site), *elsewhere]:
        agree(lines)
    with only_one(settings):
        stopped = stop_starting(settings)
        requeued = _end_runs(site, say, then, worked="worker" in stopped)
        stopped += stop_serving(site)
        alive = _alive_here(site)
        stopped += _stop_last(site, say, then, alive, elsewhere)
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return Halted(stopped=stopped, requeued=requeued, going_on=_known(alive))


def stop_starting(settings: Settings) -> list[str]:
    """Stop what starts runs, and the supervisor, which would bring it back; what was stopped."""
    stop_supervisor(settings)
    leaders = daemons.scheduler_daemon(settings), daemons.follower_daemon(settings)
    each = *leaders, daemons.worker_daemon(settings)
    return [daemon.name for daemon in each if daemon.stop(signal.SIGTERM, _LEAVE_S)]


def stop_for_others(site: Site) -> list[str]:
    """Stop all but guard and database, for others to take their place; what was stopped.

    Containers go on, and the next worker begins another flow process for each.
    """
    stopped = stop_starting(site.settings)
    _end_flows(site, LiveFlows(site.settings.state_dir, site.clock), (signal.SIGKILL,))
    return stopped + stop_serving(site)


def stop_serving(site: Site) -> list[str]:
    """Stop flow processes, gateway and server, behind `stop_starting`; what was stopped."""
    settings, stopped = site.settings, []
    if daemons.fork_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
        stopped.append("fork server")
    _end_flows(site, LiveFlows(settings.state_dir, site.clock))
    if daemons.gateway_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
        stopped.append("gateway")
    if daemons.server_daemon(settings).stop(signal.SIGTERM, 20.0):
        stopped.append("server")
    return stopped


def _stop_last(
    site: Site, say: Say, then: AtDown, alive: Mapping[str, str], elsewhere: list[str]
) -> list[str]:
    """Stop guard and database, unless something needs them that is *alive* here or *elsewhere*.

    Where the engine does not tell what is alive, what runs of the two stays.
    """
    settings, stopped = site.settings, []
    if alive:
        if any(alive.values()):
            start_guard(settings, site.clock, say)  # where it had died: nobody else brings it back
        if daemons.guard_daemon(settings).process() is not None:
            say(
                f"the guard keeps running for what goes on: {', '.join(alive)}; "
                "`headway up` takes it up"
            )
    elif daemons.guard_daemon(settings).stop(signal.SIGTERM, _LEAVE_S):
        stopped.append("guard")
    needed = alive or (elsewhere and then is not AtDown.STOP)
    database = daemons.database_daemon(settings)
    if needed and settings.owns_database and database.process() is not None:
        say("the database stays for what goes on; another `headway down` behind it stops it")
    elif database.stop(signal.SIGINT, 60.0):  # last: the others write to it
        stopped.append("database")
        if elsewhere:
            within = format_duration(GuardTimes(settings.lease_ttl_s).end_s)
            say(f"other nodes stop what runs there unless it is back within {within}")
    return stopped


def _known(alive: Mapping[str, str]) -> list[str] | None:
    return sorted(set(alive.values())) if "" not in alive.values() else None


def _under_way(site: Site) -> list[str]:
    """What runs on this node, and whose it is; by its container alone where no ledger tells."""
    alive, flows = _alive_here(site), LiveFlows(site.settings.state_dir, site.clock).now()
    if not alive and not flows:
        return []
    try:
        runs = site.ledger.runs.of(sorted({*alive.values(), *flows}))
    except LedgerError:
        return [f"{name}, whose owner is not known without the ledger" for name in alive]
    return _lines(run for run in runs.values() if run.state in GRANTED)


def _elsewhere(site: Site) -> list[str]:
    """What runs on other nodes by the database that would stop here."""
    settings = site.settings
    if not settings.owns_database or daemons.database_daemon(settings).process() is None:
        return []
    try:
        nodes = {record.node.name for record in site.ledger.nodes.all()} - {settings.node}
        return _lines(run for node in sorted(nodes) for run in site.ledger.runs.on_node(node))
    except LedgerError:
        return []


def _lines(runs: Iterable[RunRecord]) -> list[str]:
    return [
        f"{run.name} ({run.run_id[:8]}) of {run.owner or 'nobody who is known'}, "
        f"team {run.team}, on node {run.node}"
        for run in runs
    ]


def _end_runs(site: Site, say: Say, then: AtDown, *, worked: bool) -> list[str]:
    """Do with what is under way on this node as *then* says; the runs that were requeued.

    *worked* says that a worker was here until now. Without it a node at which nothing is alive
    has nothing to end, and its ledger need not be there to be asked.
    """
    settings, flows = site.settings, LiveFlows(site.settings.state_dir, site.clock)
    if not (worked or flows.now() or any(_alive_here(site).values())):
        return []
    requeued, limit_s = [], math.inf
    try:
        start_database(settings, site.clock, say)  # where something lives after it has died
        with PrefectServer(settings.api_url, auth=site_auth(settings), timeout_s=5.0) as server:
            _end_beside(site, server, flows)
            under_way = site.ledger.runs.on_node(settings.node) if then is AtDown.STOP else []
            for run in under_way:
                say(f"stopping {run.name} ({run.run_id[:8]}), which goes back to the queue …")
                requeued += _requeue(site, run)
            if then is AtDown.STOP:
                grace_s = max((stop_grace_s(run.job) for run in under_way), default=0.0)
                limit_s = grace_s + _END_S
            elif then is AtDown.GO_ON:
                # A flow holds nothing, and Prefect need not hear of the end of this one.
                _end_flows(site, flows, (signal.SIGKILL,))
                limit_s = 0.0
            left = _see_them_end(site, flows, limit_s)
    except (LedgerError, NoDatabase, StartFailed) as error:
        say(f"runs were left as they are: {error}")
        return []
    if then is AtDown.STOP:
        for run_id in sorted(left):
            say(f"run {run_id} has not ended; its container goes on until a worker is here again")
    return requeued


def _requeue(site: Site, run: RunRecord) -> list[str]:
    """Put *run*, or the gang that it is a part of, back to the queue; its id, if that was done.

    Its janitor stops its container then, and only after that the lease goes. A program that has
    ended already is left to be settled.
    """
    ledger, name = site.ledger, container_name(run.run_id, run.attempt)
    status = site.runtime.inspect(name)
    if status is not None and status.state is ContainerState.EXITED:
        return []
    stopped = f"stopped by {os_user()} (headway down); it goes on from its checkpoint"
    head = run if run.gang_id is None else ledger.runs.get(run.gang_id)
    with suppress(LeaseLost):  # it has moved on: the janitor sees where it is
        fence = head.fence(ledger.leases.of_run(head.run_id))
        ledger.runs.requeue(fence, Exit(ExitKind.PREEMPTED, None, stopped))
        if status is None:
            end_flow(site, run.run_id)  # nothing tells it, as while it copies data
        return [head.run_id]
    return []


def _end_beside(site: Site, server: PrefectServer, flows: LiveFlows) -> None:
    """End flows that are no runs, estimates and refits: they hold nothing, and begin anew."""
    alive = flows.now()
    for run_id in sorted(alive - site.ledger.runs.of(list(alive)).keys()):
        end_flow(site, run_id, signal.SIGKILL)
        with suppress(SiteUnreachable):
            server.end(run_id, "CANCELLED", f"{CANCELLED_BY}{os_user()} (headway down)")


def _see_them_end(site: Site, flows: LiveFlows, limit_s: float) -> set[str]:
    """Make rounds of the janitor, which has no worker, until nothing is left; what is, in the end.

    A flow process cleans up and tells Prefect after its lease is gone: it is waited for, too. Of
    what else has ended here Prefect is told by the next scheduler.
    Without a limit what has no flow process and no container any more is left to the next worker.
    """
    janitor, end_s = Janitor(site), site.clock.monotonic_s() + limit_s
    at_most = f", at most {format_duration(limit_s)}," if limit_s < math.inf else ""
    with (
        waiting_for(f"what runs here to stop{at_most}"),
        _logged_to(daemons.worker_daemon(site.settings).log),
    ):
        while True:
            with suppress(RuntimeFailure):
                janitor.round(janitor.unsettled(), frozenset())
            held = {lease.run_id for lease in site.ledger.leases.live(site.settings.node)}
            if limit_s == math.inf:
                held &= set(_alive_here(site).values())
            if limit_s == 0.0:
                janitor.wait_for_stops()  # of what its user has cancelled
            if not (held or flows.now()) or site.clock.monotonic_s() >= end_s:
                return held
            site.clock.sleep(_LOOK_EVERY_S)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """What the janitor logs goes where its worker's words are, not to whoever types `down`."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("headway")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _end_flows(
    site: Site,
    flows: LiveFlows,
    how: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
) -> None:
    """End the flow processes that are left: without server and ledger they would wait for them.

    What their runs are, ledger and containers say; the next worker goes on from there.
    """
    for number in how:
        for run_id in flows.now():
            end_flow(site, run_id, number)
        until(lambda: not flows.now(), site.clock, _LEAVE_S, 0.1)


def _alive_here(site: Site) -> dict[str, str]:
    """The run of each container that runs on this node, as far as its runtime tells."""
    runtime = site.chosen.for_stopping()
    try:
        listed = runtime.containers() if runtime is not None else []
    except RuntimeFailure as error:
        return {f"what runs in the engine ({error})": ""}
    return {each.name: each.run_id for each in listed if each.state is ContainerState.RUNNING}
