"""Runs on their way from a claim to a flow process."""

from collections.abc import Callable, Iterable
from uuid import UUID

import anyio
from prefect.logging import get_logger

from headway.clock import Clock
from headway.errors import HeadwayError
from headway.policy.restart import Restarts

log = get_logger("worker.gpu-node")

_REMEMBERED_S = 600.0
"""A run that was not tried for so long after its rest is elsewhere, or nobody wants it any more."""


class Claims:
    """The runs that this worker starts, until their flow processes have ended.

    Whatever ends a start early, the claim is given back. Should that fail too, the
    deadline of the claim in the ledger ends it. A run whose start has failed rests before it is
    claimed here again, longer each time.
    """

    def __init__(self, give_back: Callable[[str], None], clock: Clock) -> None:
        """*give_back* gives the claim of a run back in the ledger; runs rest by *clock*."""
        self._give_back = give_back
        self._clock = clock
        self._failed: dict[UUID, Restarts] = {}
        self._untaken: set[UUID] = set()
        self._processes: set[UUID] = set()

    @property
    def held(self) -> frozenset[UUID]:
        """Runs that nobody else may start now."""
        return frozenset(self._untaken | self._processes)

    @property
    def without_process(self) -> frozenset[UUID]:
        """Those of them that have no flow process yet."""
        return frozenset(self._untaken)

    @property
    def resting(self) -> frozenset[UUID]:
        """Runs that are not to be started here now, since their last start has failed."""
        now_s = self._clock.monotonic_s()
        self._failed = {
            run_id: seen
            for run_id, seen in self._failed.items()
            if now_s < seen.due_s() + _REMEMBERED_S
        }
        return frozenset(run_id for run_id, seen in self._failed.items() if now_s < seen.due_s())

    def failed(self, run_id: UUID) -> None:
        """It was not started."""
        seen = self._failed.get(run_id, Restarts())
        self._failed[run_id] = seen.started(self._clock.monotonic_s())

    def add(self, run_ids: Iterable[UUID]) -> None:
        """These are to be started."""
        self._untaken.update(run_ids)

    def process_begins(self, run_id: UUID) -> None:
        """From here on the janitor looks after the run, by the lock of its flow process."""
        self._untaken.discard(run_id)
        self._failed.pop(run_id, None)
        self._processes.add(run_id)

    def process_ended(self, run_id: UUID) -> None:
        """Its flow process is gone."""
        self._processes.discard(run_id)

    async def give_back(self, run_ids: Iterable[UUID]) -> None:
        """Those of *run_ids* that have no flow process are not started after all."""
        for run_id in self._untaken.intersection(run_ids):
            try:
                await anyio.to_thread.run_sync(self._give_back, str(run_id))
            except HeadwayError as error:
                log.warning("the claim of run %s ends with its deadline: %s", run_id, error)
            finally:
                self._untaken.discard(run_id)
