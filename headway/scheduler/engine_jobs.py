"""All jobs of this site on one engine, asked for by one question for all of its pools."""

import logging
import math
import threading
from collections.abc import Sequence

from headway.engine.errors import EngineAway
from headway.engine.kinds import SLURM, opened
from headway.engine.pace import pause_s
from headway.engine.place import Place
from headway.engine.port import Array, Engine, Job, Phase, Request
from headway.model.engine import EnginePool
from headway.site import Site

log = logging.getLogger(__name__)

_AFTER_END_S = 2.0
"""Once its own record tells of the end of a job, nobody need wait for long to hear the same."""
_ALIVE = frozenset({Phase.RUNNING, Phase.ENDING, Phase.SUSPENDED})


def open_engine(site: Site, kind: str, said: Sequence[EnginePool] = ()) -> Engine:
    """That engine as this node has it, with its jobs in the home, which its machines share.

    *said* is what is known of its pools before the ledger knows it.
    """
    settings = site.settings
    folder = settings.slurm_dir if kind == SLURM else settings.engines_dir / kind
    known = site.ledger.engines.pools().values()
    here = [each.has for each in known if (each.engine, each.node) == (kind, settings.node)]
    return opened(kind, Place(folder), site.site_id, site.clock, said or here)


class EngineJobs:
    """What an engine said last of its jobs. Its methods may be called from any thread."""

    def __init__(self, engine: Engine, site: Site) -> None:
        """Nothing was asked yet."""
        self.engine = engine
        self.questions = 0
        """How often it was asked."""
        self._clock = site.clock
        self._jobs: dict[str, Job] = {}
        self._next_s = -math.inf
        self._asked_s = -math.inf
        self._failures = 0
        self._away = EngineAway("the engine", "jobs", "it was not asked yet")
        self._lock = threading.Lock()

    def now(self) -> dict[str, Job]:
        """By key, as they were told last: asked for as often as people want, and others bear.

        Raises:
            EngineAway: It has not answered yet.
        """
        with self._lock:
            if self._clock.monotonic_s() >= self._due_s():
                self._ask()
            if not self.questions:  # no job is known, nor that there is none
                raise self._away.with_traceback(None)
            return dict(self._jobs)

    def _due_s(self) -> float:
        alive = (key for key, job in self._jobs.items() if job.phase in _ALIVE)
        if not self._failures and any(self.engine.used(key) is not None for key in alive):
            return min(self._next_s, self._asked_s + _AFTER_END_S)
        return self._next_s

    def _ask(self) -> None:
        began_s = self._clock.monotonic_s()
        try:
            self._jobs = {job.key: job for job in self.engine.jobs()}
            self._failures = 0
            self.questions += 1
        except EngineAway as away:
            self._failures += 1
            if self._failures == 1:
                log.warning("%s", away)
            self._away = away
        finally:
            self._asked_s = self._clock.monotonic_s()
            self._next_s = self._asked_s + pause_s(self._asked_s - began_s, self._failures)

    def submit(self, request: Request) -> str:
        """Submit it; the engine's name for it. See `Engine.submit`."""
        engine_id = self.engine.submit(request).engine_id
        array = request.part(Array)
        with self._lock:  # the next answer has it
            for one in [request] if array is None else array.each:
                self._jobs.setdefault(one.key, Job(one.key, 0, engine_id, Phase.WAITING))
        return engine_id

    def forget(self, key: str) -> None:
        """Let go of a job that has ended, and of the engine's files of it."""
        self.engine.forget(key)
        with self._lock:
            self._jobs.pop(key, None)
