"""Has each end of a run written to the tracker of its team, again and again until it is there."""

import logging
from collections.abc import Hashable
from datetime import timedelta
from typing import Generic, TypeVar

import anyio
import httpx
from prefect.blocks.core import Block

from headway.errors import shown
from headway.leader.mlflow import HeadwayMlflow, MlflowRefused, write
from headway.model.notice import Notice
from headway.site import Site
from headway.views.tracked_run import TrackedRun, tracked_run

Key = TypeVar("Key", bound=Hashable)
log = logging.getLogger(__name__)

_WITHIN_S = 30.0
_TURN_S = 30.0
"""So long at most a turn begins to write further ends."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0
"""An unreachable tracker is asked again after so long, and each time after twice as long."""
_GIVEN_UP_AFTER = timedelta(days=3)
_AWAY = frozenset({401, 429, 502, 503, 504})
"""Statuses of an answer that any other end would get too."""


_IN_A_ROW = 10
"""So many ends that fail for themselves, and none that is taken: it is the tracker."""


class _BlockUnfit(Exception):
    """The tracker's block cannot be loaded, or is of another type."""


class _Pauses(Generic[Key]):
    """What is left alone for a while, for twice as long each time."""

    def __init__(self) -> None:
        self._pauses: dict[Key, tuple[float, float]] = {}
        """Until when, on the monotonic clock, and for how long."""

    def add(self, key: Key, at_s: float) -> float:
        """Leave *key* alone from *at_s* on; gives for how long."""
        pause_s = min(2 * self._pauses.get(key, (0.0, _FIRST_PAUSE_S / 2))[1], _LONGEST_PAUSE_S)
        self._pauses[key] = at_s + pause_s, pause_s
        return pause_s

    def end(self, key: Key) -> None:
        """Leave *key* alone no longer."""
        self._pauses.pop(key, None)

    def at(self, at_s: float) -> list[Key]:
        """What is left alone at that time."""
        return [key for key, (until_s, _) in self._pauses.items() if at_s < until_s]


class Trackers:
    """Tells the trackers of a pool's teams; one that does not answer holds up no other."""

    def __init__(self, site: Site) -> None:
        """Of *site*'s pool."""
        self._site = site
        self._blocks, self._notices = _Pauses[str](), _Pauses[int]()

    async def tell(self) -> None:
        """Write what no tracker has yet, of each block beside the others, for a while."""
        pool, at_s = self._site.settings.pool, self._site.clock.monotonic_s()
        blocks = await anyio.to_thread.run_sync(self._site.ledger.notices.trackers, pool)
        async with anyio.create_task_group() as group:
            for block in set(blocks).difference(self._blocks.at(at_s)):
                group.start_soon(self._tell_block, block, at_s + _TURN_S)

    async def _tell_block(self, block: str, until_s: float) -> None:
        ledger, clock = self._site.ledger.notices, self._site.clock
        pool, failed = self._site.settings.pool, 0
        while True:
            late = self._notices.at(clock.monotonic_s())
            due = await anyio.to_thread.run_sync(ledger.untracked, pool, block, late)
            if not due:
                return
            for notice in due:
                failed = 0 if await self._tell(notice) else failed + 1
                at_s = clock.monotonic_s()
                if failed >= _IN_A_ROW:
                    self._blocks.add(block, at_s)
                if at_s >= until_s or block in self._blocks.at(at_s):
                    return

    async def _tell(self, notice: Notice) -> bool:
        """Whether it was taken, or never will be; else when it is tried again is settled."""
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
            why, at_s = _words(error), self._site.clock.monotonic_s()
            over = now - notice.made_at > _GIVEN_UP_AFTER
            if _is_away(error):
                pause_s = self._blocks.add(notice.block, at_s)
                log.warning("%s is not told: %s; again in %.0f s", notice.block, why, pause_s)
            elif over:
                self._notices.end(notice.notice_id)
            else:
                pause_s = self._notices.add(notice.notice_id, at_s)
                what = "%s is not told of run %s: %s; again in %.0f s"
                log.warning(what, notice.block, notice.run_id, why, pause_s)
            keep = ledger.tracked if over else ledger.not_sent
            await anyio.to_thread.run_sync(keep, notice, why)
            return False
        else:
            self._blocks.end(notice.block)
            await anyio.to_thread.run_sync(ledger.tracked, notice)
        self._notices.end(notice.notice_id)
        return True


async def _write(name: str, run: TrackedRun) -> None:
    try:
        block: object = await Block.aload(name)
    except Exception as error:
        raise _BlockUnfit(f"its block cannot be loaded: {type(error).__name__}") from error
    if not isinstance(block, HeadwayMlflow):
        raise _BlockUnfit("its block is none of an MLflow server")
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


def _is_away(error: Exception) -> bool:
    """Whether any other end would fail too; else it may be for this one alone."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _AWAY
    return isinstance(error, httpx.TransportError | TimeoutError | _BlockUnfit)


def _words(error: Exception) -> str:
    """What is said of *error*: of what may quote a header, which has the secret, its type alone."""
    name = type(error).__name__
    if isinstance(error, httpx.HTTPStatusError | _BlockUnfit):
        return str(error)
    if (
        isinstance(error, httpx.TransportError)
        and not isinstance(error, httpx.LocalProtocolError)
        and str(error)
    ):
        return f"{name}: {shown(str(error), 200)[1:-1]}"
    return name
