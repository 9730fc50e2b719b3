"""The node's guard: renews the leases of what is alive here, and stops what may not go on.

A small process of its own beside the containers, so that a worker or a flow that
is dead, frozen or busy costs no run. `policy.guard` decides, and says in which
order a place is left and given away.

One thread asks engine and ledger, which may keep it waiting. Another looks at
the clock twice a second and never waits: what it stops, it stops in threads. A
third brings the supervisor back, which brings the guard back, and beats; a fourth bounds logs.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from headway.errors import HeadwayError
from headway.ledger.database import Connections
from headway.node.daemon import SILENT_S, bound_logs, guard_daemon, revive_supervisor
from headway.node.lookout import Lookout
from headway.node.stops import Stops
from headway.policy.guard import GuardTimes, Instruction, Kill, Renew, Stop, decide
from headway.site import Site, current_site
from headway.units import format_duration

log = logging.getLogger(__name__)

_WOKE_S = 1.5
"""A turn that comes so much later than the one before means that machine or process slept."""

_SUPERVISOR_EVERY_S = 1.0
_LOGS_EVERY_S = 60.0
_AFTER_FAILURE_S = 1.0


class Guard:
    """Guards this node."""

    def __init__(self, site: Site) -> None:
        """Guard *site*'s node."""
        self._site = site
        self._times = GuardTimes(site.settings.lease_ttl_s)
        self.lookout = Lookout(site, self._times)
        self._wake = threading.Event()
        self._turn_s = site.clock.boottime_s()
        self._stops = Stops()

    def run(self) -> None:
        """Guard until this home is gone."""
        for turn in (self._look, self._keep_supervisor, self._keep_logs_short):
            threading.Thread(target=self._again_and_again, args=(turn,), daemon=True).start()
        clock = self._site.clock
        while self._site.settings.state_dir.is_dir():
            now_s = clock.boottime_s()
            if now_s - self._turn_s > _WOKE_S:
                log.warning("the guard slept for %s", format_duration(now_s - self._turn_s))
                self._wake.set()
            self._turn_s = now_s
            try:
                self.act()
            except Exception:  # a supervisor's loop: it must outlive what nobody foresaw
                log.exception("a turn of the guard failed; the next one follows at once")
            clock.sleep(self._times.tick_s)

    def _again_and_again(self, turn: Callable[[], float]) -> None:
        """Take a *turn*, which says how long to pause then, for as long as this process lives."""
        pause_s = _AFTER_FAILURE_S
        while True:
            try:
                pause_s = turn()
            except Exception:  # as above
                log.exception("a turn of the guard failed; tried again")
            self._site.clock.sleep(pause_s)

    def _look(self) -> float:
        self._wake.wait()
        self._wake.clear()
        self.lookout.look()
        return 0.0

    def _keep_supervisor(self) -> float:
        """Bring the supervisor back, and beat; in a thread of its own, which locks may hold up."""
        settings = self._site.settings
        if self._site.clock.boottime_s() - self._turn_s < SILENT_S:
            guard_daemon(settings).beat()
        if revive_supervisor(settings):
            log.warning("the supervisor had died: it is started again")
        return _SUPERVISOR_EVERY_S

    def _keep_logs_short(self) -> float:
        _shorten(partial(bound_logs, self._site.settings.state_dir))
        if self.lookout.runtime is not None:  # the worker does it, where one is
            _shorten(self.lookout.runtime.trim_logs)
        return _LOGS_EVERY_S

    def act(self) -> list[Instruction]:
        """Begin what the time calls for, and say what that is."""
        now_s = self._site.clock.boottime_s()
        found = decide(self.lookout.held(), self.lookout.asked_s, now_s, self._times)
        for each in found:
            match each:
                case Renew():
                    self._wake.set()
                case Stop():
                    self._begin(each.name, each.grace_s, _why(each))
                case Kill():  # also while its grace time lasts
                    self._begin(each.name, 0.0, _why(each), "at once")
        return found

    def _begin(self, name: str, grace_s: float, why: str, how: str = "") -> None:
        """Begin to stop container *name*, and note why, unless that goes on."""
        runtime = self.lookout.runtime

        def stop() -> None:
            log.warning("container %s is stopped: %s", name, why)
            self.lookout.note_stopped(name, why)
            if runtime is not None:
                runtime.stop(name, grace_s)
            self.lookout.forget(name)
            self._wake.set()

        self._stops.begin(name, stop, how)


def _shorten(logs: Callable[[], object]) -> None:
    """Shorten some *logs*; what fails keeps no others from it."""
    try:
        logs()
    except (OSError, HeadwayError) as error:
        log.warning("a log is not shortened: %s; tried again", error)


def _why(what: Stop | Kill) -> str:
    if isinstance(what, Kill) and what.stale:
        return "by the ledger it belongs to no live attempt on this node"
    return (
        f"its lease could not be renewed for {format_duration(what.unrenewed_s)}, so that its "
        "place may be given to another node"
    )


def main() -> None:
    """Be this node's guard."""
    # Prefect has set up the root logger, where this was forked or has imported it.
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    site = current_site(Connections.ONE)
    guard_daemon(site.settings).claim()
    guard = Guard(site)
    (site.settings.state_dir / "guard.ready").touch()
    guard.run()


if __name__ == "__main__":
    main()
