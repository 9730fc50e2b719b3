"""Has each end of a run written to the tracker of its team, again and again until it is there."""

import logging
from datetime import timedelta

import anyio
import httpx
from prefect.blocks.core import Block

from headway.leader.mlflow import HeadwayMlflow, MlflowRefused, write
from headway.model.notice import Notice
from headway.site import Site
from headway.views.tracked_run import TrackedRun, tracked_run

log = logging.getLogger(__name__)

_WITHIN_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0
"""An unreachable tracker is asked again after so long, and each time after twice as long."""
_GIVEN_UP_AFTER = timedelta(days=3)


class Trackers:
    """Tells the trackers of a pool's teams; one that does not answer holds up no other."""

    def __init__(self, site: Site) -> None:
        """Of *site*'s pool."""
        self._site = site
        self._pauses: dict[str, tuple[float, float]] = {}
        """By block: until when it is left alone, on the monotonic clock, and for how long."""

    async def tell(self) -> None:
        """Write what no tracker has yet."""
        ledger, clock = self._site.ledger.notices, self._site.clock
        pool = self._site.settings.pool
        while True:
            at_s = clock.monotonic_s()
            resting = [block for block, (until_s, _) in self._pauses.items() if at_s < until_s]
            due = await anyio.to_thread.run_sync(ledger.untracked, pool, resting)
            if not due:
                return
            for notice in due:
                if clock.monotonic_s() < self._pauses.get(notice.block, (0.0, 0.0))[0]:
                    continue
                await self._tell(notice)

    async def _tell(self, notice: Notice) -> None:
        ledger, now = self._site.ledger.notices, self._site.clock.now()
        try:
            run = await anyio.to_thread.run_sync(_ended, self._site, notice.run_id)
            if run is not None:
                with anyio.fail_after(_WITHIN_S):
                    await _write(notice.block, run)
        except MlflowRefused as refused:
            log.warning("%s does not take run %s: %s", notice.block, notice.run_id, refused)
            await anyio.to_thread.run_sync(ledger.tracked, notice, str(refused))
        except Exception as error:  # noqa: BLE001 - whatever a block raises, others are told
            why = _words(error)
            pause_s = min(
                2 * self._pauses.get(notice.block, (0.0, _FIRST_PAUSE_S / 2))[1], _LONGEST_PAUSE_S
            )
            until_s = self._site.clock.monotonic_s() + pause_s
            self._pauses[notice.block] = until_s, pause_s
            log.warning("%s is not told: %s; again in %.0f s", notice.block, why, pause_s)
            over = now - notice.made_at > _GIVEN_UP_AFTER
            keep = ledger.tracked if over else ledger.not_sent
            await anyio.to_thread.run_sync(keep, notice, why)
        else:
            self._pauses.pop(notice.block, None)
            await anyio.to_thread.run_sync(ledger.tracked, notice)


async def _write(name: str, run: TrackedRun) -> None:
    block: object = await Block.aload(name)
    if not isinstance(block, HeadwayMlflow):
        raise TypeError(f"{name} is no block of an MLflow server")
    async with block.client() as server:
        await write(server, run)


def _ended(site: Site, run_id: str | None) -> TrackedRun | None:
    """What is told of the run; None where somebody retries it: its next end is told."""
    record = site.ledger.runs.get(run_id or "")
    if record.ended_at is None:
        return None
    node = site.ledger.nodes.get(record.node) if record.node is not None else None
    gpus = node.node.capacity.gpus if node is not None else ()
    return tracked_run(
        record, record.ended_at, site.ledger.leases.every_of_run(record.run_id), gpus
    )


def _words(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, httpx.HTTPStatusError) and said:
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
