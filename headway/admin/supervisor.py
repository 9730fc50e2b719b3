"""Brings back what has died of the site's processes on this machine, where no systemd does.

`headway up` and `headway node join` start it last, and `headway down` stops it first. Each process
has a thread of its own: a server that takes its time keeps no worker from coming back. Guard and
worker bring the supervisor back: whichever of the three lives brings back the others. One that is
there and does nothing is killed first; server, gateway and database are asked whether they answer.
A scheduler is started where nobody leads the node's pool.
"""

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from headway.admin.database.own import start_database
from headway.admin.environment import site_environment
from headway.admin.processes import (
    StartFailed,
    gateway_hangs,
    server_hangs,
    start_follower,
    start_forks,
    start_gateway,
    start_guard,
    start_prefect,
    start_scheduler,
    start_worker,
)
from headway.admin.standby import Standby
from headway.clock import Clock, SystemClock
from headway.durable import replace_file
from headway.errors import HeadwayError
from headway.ledger import hosting
from headway.node.daemon import (
    SILENT_S,
    Daemon,
    database_daemon,
    follower_daemon,
    fork_daemon,
    gateway_daemon,
    guard_daemon,
    scheduler_daemon,
    server_daemon,
    supervisor_daemon,
    supervisor_note,
    worker_daemon,
)
from headway.policy.restart import Restarts
from headway.scheduler.queue import LEADS_S
from headway.settings import Settings, read_settings

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_ASK_EVERY_S = 10.0
_HUNG_S = 120.0
"""Without an answer for so long it hangs; on a busy machine it may be late for once."""
_BEAT_EVERY_S = 5.0


def start_supervisor(settings: Settings) -> bool:
    """Start it unless it runs; whether it was started."""
    daemon = supervisor_daemon(settings)
    with daemon.starting():
        if daemon.runs(log.warning):
            return False
        command = ["headway.admin.supervisor"]
        replace_file(supervisor_note(settings), json.dumps(command))
        daemon.start_python(command, site_environment(settings))
    return True


def stop_supervisor(settings: Settings) -> None:
    """Stop it, for good: nothing brings it back either."""
    daemon = supervisor_daemon(settings)
    with daemon.starting():  # a guard that is just bringing it back comes to its end first
        supervisor_note(settings).unlink(missing_ok=True)
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

    def say(line: str) -> None:
        log.info("%s", line)

    standby = Standby(settings, clock)
    yield Kept(fork_daemon(settings), lambda: start_forks(settings))
    yield Kept(guard_daemon(settings), lambda: start_guard(settings, clock, say))
    yield Kept(worker_daemon(settings), lambda: start_worker(settings, clock, say))
    yield Kept(
        scheduler_daemon(settings),
        lambda: start_scheduler(settings, say),
        is_wanted=standby.is_due,
        stopped_s=LEADS_S,
    )
    yield Kept(
        follower_daemon(settings),
        lambda: start_follower(settings, say),
        is_wanted=standby.is_submit_host,
    )
    if not settings.is_guest:
        yield Kept(
            server_daemon(settings),
            lambda: start_prefect(settings, clock, say),
            lambda: server_hangs(settings),
        )
        yield Kept(
            gateway_daemon(settings),
            lambda: start_gateway(settings, clock, say),
            lambda: gateway_hangs(settings),
        )
    if settings.owns_database:
        yield Kept(
            database_daemon(settings),
            lambda: start_database(settings, clock, say),
            lambda: hosting.hangs(settings.database_url),
        )


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
    daemon = supervisor_daemon(settings)
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


if __name__ == "__main__":
    main()
