"""Why runs wait, as Prefect shows it: states, lines of their logs, and an artifact for each.

A page costs Prefect's server some 50 ms of a processor that starts of runs need, too. So the runs
that are planned for come first, and those behind them have the state alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import anyio
import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate, LogCreate
from prefect.client.schemas.filters import ArtifactFilter
from prefect.client.schemas.objects import FlowRun

from headway.clock import Clock
from headway.views.run_markdown import page_link, waiting_text
from headway.worker.pool import PrefectPool
from headway.worker.states import awaiting

KEY = "waiting"
RUNS_AT_ONCE = 25
_ANSWER_S = 5.0
"""Prefect's client would write a state again and again, also when the run has its place."""
_PAGES_KNOWN = 10_000


class News(NamedTuple):
    """What a run's page does not say yet."""

    at: datetime
    sentence: str
    """Why the run waits; empty once it was given its place."""
    logged: bool
    """Worth a line of its log."""
    planned: bool
    """The run is one of the first, for which is planned."""


class WaitPages:
    """Collects what is to be said of runs that wait, and writes it when the server answers."""

    def __init__(
        self,
        client: PrefectClient,
        pool: PrefectPool,
        clock: Clock,
        waits: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Nothing is known yet of any page; *waits* asks the ledger whether a run waits now."""
        self.news = asyncio.Event()
        self._client = client
        self._pool = pool
        self._clock = clock
        self._waits = waits
        self._unwritten: dict[str, News] = {}
        self._last: dict[str, News] = {}
        self._explained: dict[str, str] = {}
        self._unexplained: set[str] = set()
        self._artifacts: dict[str, UUID] = {}

    def say(self, run_id: str, sentence: str, *, logged: bool, planned: bool = True) -> None:
        """Why the run waits now; *logged* for its log, too. Other arguments: see `News`."""
        before = self._unwritten.pop(run_id, None)
        logged |= before is not None and before.logged
        news = News(self._clock.now(), sentence, logged, planned)
        self._unwritten[run_id] = self._last[run_id] = news
        self.news.set()

    def explain(self, run_id: str, text: str) -> None:
        """What would start the run earlier, and who is ahead of it, below why it waits."""
        if self._explained.get(run_id) != text and run_id in self._artifacts:
            self._explained[run_id] = text
            self._unexplained.add(run_id)
            self.news.set()

    def over(self, run_id: str) -> None:
        """The run was given its place; its artifact must not go on saying that it waits."""
        for known in (self._unwritten, self._last, self._explained):
            known.pop(run_id, None)
        self._unexplained.discard(run_id)
        if run_id in self._artifacts:
            self.say(run_id, "", logged=False)

    async def write(self) -> None:
        """Write of some runs what is new; what the server did not take is kept, behind the rest."""
        first = sorted(self._unwritten.items(), key=lambda each: not each[1].planned)
        batch = dict(first[:RUNS_AT_ONCE])
        for run_id in batch:
            del self._unwritten[run_id]
        try:
            await self._write(batch)
        except httpx.HTTPError:
            self._unwritten |= {k: each for k, each in batch.items() if k not in self._unwritten}
            raise
        finally:
            if not self._unwritten:
                self.news.clear()

    async def _write(self, batch: dict[str, News]) -> None:
        """Write *batch*; what was written leaves it."""
        waiting = [run_id for run_id, news in batch.items() if news.sentence]
        still = await self._pool.scheduled(waiting)
        for run_id in [key for key in waiting if key not in still]:
            del batch[run_id]
        if lines := [_line(run_id, news) for run_id, news in batch.items() if news.logged]:
            await self._client.create_logs(lines)
            batch |= {run_id: news._replace(logged=False) for run_id, news in batch.items()}
        for run_id, news in list(batch.items()):
            batch[run_id] = batch.pop(run_id)  # the last one, where the server fails with it
            if (run := still.get(run_id)) is not None:
                await self._annotate(run, news.sentence)
            if news.planned or run_id in self._artifacts:
                more = self._explained.get(run_id, "")
                await self._put(run_id, waiting_text(news.sentence, news.at) + more)
            self._unexplained.discard(run_id)
            del batch[run_id]
        for run_id in self._unexplained & self._last.keys():
            last = self._last[run_id]
            await self._put(run_id, waiting_text(last.sentence, last.at) + self._explained[run_id])
        self._unexplained.clear()
        self._artifacts = dict(list(self._artifacts.items())[-_PAGES_KNOWN:])
        self._last = dict(list(self._last.items())[-_PAGES_KNOWN:])
        self._explained = {key: text for key, text in self._explained.items() if key in self._last}

    async def _annotate(self, run: FlowRun, sentence: str) -> None:
        """Say in the run's state why it waits, if it does.

        A state that comes after a grant would have the run be offered anew: the ledger is asked
        right before, and no pass comes between. Nor does a pass wait for a slow server for long.

        Raises:
            httpx.ReadTimeout: The server did not take it soon.
        """
        state = awaiting(sentence, self._clock.now(), run.next_scheduled_start_time)
        async with self._pool.passing:
            with anyio.move_on_after(_ANSWER_S) as writing:
                if await self._waits(str(run.id)) and run.state is not None:
                    await self._pool.write_over(str(run.state.id), run.id, state)
        if writing.cancelled_caught:
            raise httpx.ReadTimeout(f"Prefect did not write why run {run.id} waits")

    async def _put(self, run_id: str, text: str) -> None:
        text += f"\n{page_link(run_id)}\n"
        known = self._artifacts.pop(run_id, None) or await self._find(run_id)
        if known is None:
            wanted = ArtifactCreate(
                key=KEY,
                type="markdown",
                description="What it waits for, and when it is expected to start",
                data=text,
                flow_run_id=UUID(run_id),
            )
            known = (await self._client.create_artifact(wanted)).id
        else:
            await self._client.update_artifact(known, ArtifactUpdate(data=text))
        self._artifacts[run_id] = known  # the newest last

    async def _find(self, run_id: str) -> UUID | None:
        """The artifact that another worker has made, or this one before it was started anew."""
        asked = {"key": {"any_": [KEY]}, "flow_run_id": {"any_": [run_id]}}
        made = await self._client.read_artifacts(
            artifact_filter=ArtifactFilter.model_validate(asked)
        )
        return made[0].id if made else None


def _line(run_id: str, news: News) -> LogCreate:
    return LogCreate(
        name="headway",
        level=logging.INFO,
        message=f"waits: {news.sentence}",
        timestamp=news.at,
        flow_run_id=UUID(run_id),
    )
