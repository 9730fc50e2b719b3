"""Brings back what has died of the site's processes on this machine, where no systemd does.

`headway up` and `headway node join` start it last, and `headway down` stops it first. Each process
has a thread of its own: a server that takes its time keeps no worker from coming back. Guard and
worker bring the supervisor back: whichever of the three lives brings back the others. One that is
there and does nothing is killed first; server, gateway and database are asked whether they answer.
A scheduler is started where nobody leads the node's pool.
"""

import json
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from types import FrameType

from headway.admin import processes
from headway.admin.database.own import start_database
from headway.admin.environment import site_environment
from headway.admin.processes import StartFailed
from headway.clock import Clock, NowAndThen, SystemClock
from headway.durable import replace_file
from headway.errors import HeadwayError
from headway.ledger import Ledger, hosting
from headway.ledger.leaders import LEADS_S
from headway.node import daemon as daemons
from headway.node.daemon import SILENT_S, Daemon
from headway.policy.restart import Restarts
from headway.settings import Settings, read_settings
from headway.site import Site

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_ASK_EVERY_S = 10.0
_HUNG_S = 120.0
"""Without an answer for so long it hangs; on a busy machine it may be late for once."""
_BEAT_EVERY_S = 5.0


def start_supervisor(settings: Settings) -> bool:
    """Start it unless it runs; whether it was started."""
    daemon = daemons.supervisor_daemon(settings)
    with daemon.starting():
        if daemon.runs(log.warning):
            return False
        command = ["headway.admin.supervisor"]
        replace_file(daemons.supervisor_note(settings), json.dumps(command))
        daemon.start_python(command, site_environment(settings))
    return True


def stop_supervisor(settings: Settings) -> None:
    """Stop it, for good: nothing brings it back either."""
    daemon = daemons.supervisor_daemon(settings)
    with daemon.starting():  # a guard that is just bringing it back comes to its end first
        daemons.supervisor_note(settings).unlink(missing_ok=True)
    daemon.stop(signal.SIGTERM, 10.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """How a process of the site is looked after."""

    daemon: Daemon
    start: Callable[[], object]
    hangs: Callable[[], bool] = lambda: False
    """Asks it, and says whether it is there and gives no answer."""
    is_wanted: Callable[[], bool] = lambda: True
    stopped_s: float = SILENT_S
    """Whoever stops it for a moment, to look into it, is left alone for so long."""


def kept(settings: Settings, clock: Clock) -> Iterator[Kept]:
    """The processes of this site."""
    say, standby = partial(log.info, "%s"), Standby(settings, clock)
    where = settings, clock, say
    lead = partial(processes.start_scheduler, settings, say)
    follow = partial(processes.start_follower, settings, say)
    yield Kept(daemons.fork_daemon(settings), partial(processes.start_forks, settings))
    yield Kept(daemons.guard_daemon(settings), partial(processes.start_guard, *where))
    yield Kept(daemons.worker_daemon(settings), partial(processes.start_worker, *where))
    is_due = standby.is_due
    yield Kept(daemons.scheduler_daemon(settings), lead, is_wanted=is_due, stopped_s=LEADS_S)
    yield Kept(daemons.follower_daemon(settings), follow, is_wanted=standby.is_submit_host)
    if not settings.is_guest:
        serve, hangs = partial(processes.start_prefect, *where), processes.server_hangs
        yield Kept(daemons.server_daemon(settings), serve, partial(hangs, settings))
        opened, silent = partial(processes.start_gateway, *where), processes.gateway_hangs
        yield Kept(daemons.gateway_daemon(settings), opened, partial(silent, settings))
    if settings.owns_database:
        hung = partial(hosting.hangs, settings.database_url)
        yield Kept(daemons.database_daemon(settings), partial(start_database, *where), hung)


def keep(kept: Kept, clock: Clock, leave: threading.Event) -> None:
    """Start a process again whenever it has died, is frozen or hangs, until told to *leave*."""
    daemon, seen, asked_s, hung = kept.daemon, Restarts(), clock.monotonic_s(), False
    well_s = asked_s
    while not leave.wait(_LOOK_EVERY_S):
        if clock.monotonic_s() - asked_s >= _ASK_EVERY_S:
            hung, asked_s = kept.hangs(), clock.monotonic_s()
        frozen = daemon.frozen()
        if not (frozen or hung):
            well_s = clock.monotonic_s()
        if clock.monotonic_s() - well_s >= (kept.stopped_s if frozen else _HUNG_S):
            daemon.runs(log.warning, hangs=hung)
            well_s, hung = clock.monotonic_s(), False
        if daemon.process() is not None or clock.monotonic_s() < seen.due_s():
            continue
        if not kept.is_wanted():
            continue
        seen = seen.started(clock.monotonic_s())
        log.warning("there is no %s: it is started", daemon.name)
        try:
            kept.start()
            seen = seen.ready(clock.monotonic_s())
        except StartFailed as error:
            log.warning("%s", error)
        except (HeadwayError, OSError):
            log.exception("the %s was not started", daemon.name)


def main() -> None:
    """Be the supervisor of the site that the environment names."""
    # Prefect has set up the root logger, where this was forked or has imported it.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every question
    settings, clock, leave = read_settings(), SystemClock(), threading.Event()
    daemon = daemons.supervisor_daemon(settings)
    daemon.claim()

    def end(_: int, __: FrameType | None) -> None:
        leave.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for each in kept(settings, clock):
        name = each.daemon.name
        threading.Thread(target=keep, args=(each, clock, leave), name=name, daemon=True).start()
    while not leave.wait(_BEAT_EVERY_S):
        daemon.beat()


LOOK_AGAIN_S = 0.5
_SUBMIT_HOST_EVERY_S = 3.0


class Standby:
    """Says when this node is to start a scheduler: nobody leads its pool."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """For the node of *settings*."""
        self._site = Site(settings, clock, Ledger.find)
        self._next_s = -math.inf
        self._submit_host = NowAndThen(clock, _SUBMIT_HOST_EVERY_S)

    def is_due(self) -> bool:
        """Whether it is. Nobody is asked before the term of who leads could be over."""
        clock, settings = self._site.clock, self._site.settings
        if clock.monotonic_s() < self._next_s:
            return False
        self._next_s = clock.monotonic_s() + LOOK_AGAIN_S
        try:
            if self._is_agent_alone:
                self._next_s = math.inf
                return False
            leader = self._site.ledger.leaders.of(settings.pool)
        except HeadwayError:  # nobody could lead now
            return False
        if leader is None or leader.node == settings.node:
            return True
        self._next_s += max(leader.left_s - LOOK_AGAIN_S, 0.0)
        return leader.left_s <= 0

    def is_submit_host(self) -> bool:
        """Whether runs are handed to an engine from this node: it is to have a follower."""
        if not self._submit_host.is_due():
            return False
        try:
            pools = self._site.ledger.engines.pools().values()
        except HeadwayError:
            return False
        return any(each.node == self._site.settings.node for each in pools)

    @cached_property
    def _is_agent_alone(self) -> bool:
        """Whether this node has a login of its own, by which nobody leads."""
        return self._site.ledger.node_logins.own() is not None


if __name__ == "__main__":
    main()
