"""What Prefect offers and the ledger does not know yet, taken in by parts, the oldest first.

To take a run in costs some transactions and a prediction. A worker that took in a queue of
thousands at once would start nothing meanwhile, and one that is killed before would leave
all of it to the next one, which has no more time.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from prefect.client.schemas.objects import FlowRun

from headway.worker.pool import PrefectPool

PART = 50


class Backlog:
    """The runs that were read from Prefect and are not taken in."""

    def __init__(self, pool: PrefectPool) -> None:
        """Of *pool*; nothing was read yet."""
        self._pool = pool
        self._runs: dict[str, FlowRun] = {}

    def __bool__(self) -> bool:
        """Whether some are left."""
        return bool(self._runs)

    async def part(
        self,
        known: Collection[str],
        due: datetime,
        *,
        first_page: int,
    ) -> list[FlowRun]:
        """The oldest of what is left and new; they stay until they are `taken_in`.

        Args:
            known: See `PrefectPool.new_runs`, as the others.
            due: They are to start before.
            first_page: Size of the first page.
        """
        read = {*known, *self._runs}
        new = await self._pool.new_runs(read, due, first_page=first_page)
        fresh = {str(run.id): run for run in new}
        # As the server sorts them: were a newer one known first, an older one would not be read
        # any more by the worker that comes after this one.
        left = self._runs | fresh
        first = sorted(left, key=lambda run_id: _starts_at(left[run_id]))
        part = first[:PART]
        # What was left may have been cancelled since.
        still = await self._pool.scheduled(set(part) - fresh.keys())
        for run_id in set(part) - fresh.keys() - still.keys():
            del left[run_id]
        self._runs = left | still
        return [self._runs[run_id] for run_id in part if run_id in self._runs]

    def taken_in(self, runs: Iterable[FlowRun]) -> None:
        """These are in the ledger, or decided upon."""
        for run in runs:
            self._runs.pop(str(run.id), None)


def _starts_at(run: FlowRun) -> tuple[bool, datetime | None]:
    at = run.expected_start_time or run.created
    return (at is None, at)
