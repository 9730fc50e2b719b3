"""The scheduler: plans for all nodes of a pool, and speaks with Prefect for those that wait.

One process leads, in a term that the ledger gives it; it ends when another one does. Its loop is
`Scheduler._pass`: what is new is taken in, then `PoolQueue.run_pass` reads the pool, plans, and
grants. Nodes start what is granted to them: `headway.worker`.
"""

import asyncio
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import anyio
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Failed

from headway.clock import NowAndThen
from headway.leader.agreement import agree_with_prefect
from headway.leader.backlog import Backlog
from headway.leader.events import LISTEN_AGAIN_S, events
from headway.leader.members import call_members
from headway.leader.notices import tell_people
from headway.leader.offers import offers, refused
from headway.leader.play import play_queue
from headway.leader.ranks import start_ranks
from headway.leader.settings_blocks import keep_blocks, keep_gates
from headway.leader.trackers import Trackers
from headway.leader.wait_pages import WaitPages
from headway.ledger.calls import scheduler_of
from headway.model.prefect_view import News
from headway.model.run import RunState
from headway.node.apart import apart, fork_helper
from headway.node.daemon import Daemon, scheduler_daemon
from headway.node.expiry import tidy_code
from headway.policy.agree import ON_PREFECT, Change
from headway.scheduler.intake import Offer
from headway.scheduler.queue import Pass, PoolQueue
from headway.scheduler.reconciler import Reconciler
from headway.settings import Settings
from headway.site import Site, current_site
from headway.worker.pool import PAGE, SHORT_PAGE, PrefectPool
from headway.worker.tasks import run_periodically

log = logging.getLogger(__name__)

_CONTEND_EVERY_S = 1.0
_BEAT_EVERY_S = 5.0
_LOOK_EVERY_S = 10.0
"""So often it looks at all that Prefect offers, whether or not anybody called."""
_AHEAD_S = 10.0
"""So long before its time a run is taken in."""
_HOUSE_EVERY_S = 10.0
_AGREE_EVERY_S = 5.0
"""A cancelled run is stopped within three rounds, whatever else is heard of it."""
_PAGES_EVERY_S = 1.0
_CLAIMS_EVERY_S = 0.5
_MEMBERS_EVERY_S = 2.0
_PLAY_EVERY_S = 30.0
_PLAY_PAUSE, _PAGES_PAUSE = 9.0, 3.0
"""So many times as long as it took, the next time waits."""
_NOTICES_EVERY_S = 5.0
_TIDY_EVERY_S = 3600.0
_HEARD_WITHIN_S = 60.0
"""So long one wait for a call lasts; then another one begins."""


class Scheduler:
    """Leads one pool, until another process does."""

    def __init__(
        self,
        site: Site,
        client: PrefectClient,
        *,
        queue: PoolQueue,
        reconciler: Reconciler,
        daemon: Daemon,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        """For the pool of *site*'s node.

        Args:
            site: With the pool in its settings.
            client: Prefect's own.
            queue: What is done in each pass.
            reconciler: What users want of its runs, and what Prefect is told of them.
            daemon: The process that this is, whose supervisor is told that it lives.
            look_every_s: So often there is a pass, whether or not anybody called.
        """
        self._site = site
        self._queue = queue
        self._reconciler = reconciler
        self._daemon, self._look_every_s = daemon, look_every_s
        self._pool = PrefectPool(client, site.settings.pool)
        self._backlog = Backlog(self._pool)
        self._trackers = Trackers(site)
        self._pages = WaitPages(client, self._pool, site.clock, self._waits)
        self._wake, self._housework, self._held_up = (asyncio.Event() for _ in range(3))
        self._granted, self._members_due, self._ended = (asyncio.Event() for _ in range(3))
        self._ranks_due, self._look_due = asyncio.Event(), asyncio.Event()
        self._new: list[FlowRun] = []
        self._offers: list[Offer] = []
        self._unnoted: list[str] = []
        self._called: set[str] = set()
        self._explained: Mapping[str, int] = {}
        self._whole_look = NowAndThen(site.clock, _LOOK_EVERY_S)
        self._whole_round = NowAndThen(site.clock, _AGREE_EVERY_S)
        self._house_kept = self._look_again = False
        # What takes long, or waits, has a thread of its own.
        self._contend_thread, self._call_thread = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

    async def lead(self) -> None:
        """Go on until another process leads."""
        if not await self._contend():
            return
        log.info("leads pool %s from now on", self._site.settings.pool)
        clock = self._site.clock
        async with anyio.create_task_group() as tasks:
            for body, without, every_s, wake in (
                (self._beat, "the supervisor is not told", _BEAT_EVERY_S, None),
                (self._keep_house, "settings were not read", _HOUSE_EVERY_S, None),
                (self._look, "new runs are not read", _LOOK_EVERY_S, self._look_due),
                (self._pass, "no pass over the queue", self._look_every_s, self._wake),
                (self._agree, "Prefect may say otherwise", _AGREE_EVERY_S, self._housework),
                (self._go_on_granting, "grants wait for the next pass", _CLAIMS_EVERY_S, None),
                (self._note_granted, "what was granted is not Pending", math.inf, self._granted),
                (self._start_ranks, "no ranks of gangs", _LOOK_EVERY_S, self._ranks_due),
                (self._call_members, "no members of arrays", _MEMBERS_EVERY_S, self._members_due),
                (self._play, "when runs start is told by the last time", _PLAY_EVERY_S, None),
                (self._tell_people, "people are not told of ends", _NOTICES_EVERY_S, self._ended),
                (self._trackers.tell, "ends are not tracked", _NOTICES_EVERY_S, None),
                (self._tidy, "code that nobody uses stays", _TIDY_EVERY_S, None),
                (self._tell, "why runs wait is not on their pages", _PAGES_EVERY_S, None),
                (self._listen, "no events from Prefect", LISTEN_AGAIN_S, None),
                (self._hear, "no calls of nodes", LISTEN_AGAIN_S, None),
            ):
                tasks.start_soon(run_periodically, body, clock, without, every_s, wake)
            tasks.start_soon(self._go_on_leading, tasks.cancel_scope)

    async def _contend(self) -> bool:
        """Begin to lead, or go on; whether it does."""
        while True:
            reaches = await self._pool.is_reachable()
            contend = partial(self._queue.contend, reaches_prefect=reaches)
            leader = await anyio.to_thread.run_sync(contend, limiter=self._contend_thread)
            if self._queue.leads:
                return True
            if leader.left_s > 0:
                log.info("node %s leads pool %s", leader.node, self._site.settings.pool)
                return False
            await anyio.sleep(_CONTEND_EVERY_S)  # without Prefect: somebody may reach it

    async def _go_on_leading(self, scope: anyio.CancelScope) -> None:
        async def contend() -> None:
            if not await self._contend():
                scope.cancel()

        without = "whether it leads still is not known"
        await run_periodically(contend, self._site.clock, without, _CONTEND_EVERY_S, None)

    async def _beat(self) -> None:
        self._daemon.beat()  # here: it says that this loop goes round

    # -- the pass over the queue --------------------------------------------------------

    async def _pass(self) -> None:
        """Take in what is new; read the pool, plan, and grant."""
        if not self._house_kept:
            return  # what operators have set is not known yet
        in_thread = anyio.to_thread.run_sync
        async with self._pool.passing:
            new, offers = self._new, self._offers
            try:
                taken = await in_thread(self._queue.take_in, offers)
                self._backlog.taken_in(new)
            finally:
                if new:  # what was not taken in is read again, as it is then
                    self._new, self._offers = [], []
            decided = await in_thread(self._queue.run_pass)
        for run_id, why in taken.refused.items():
            await self._pool.write_state(UUID(run_id), Failed(message=why))
        for run_id, (node, flow) in taken.flows.items():
            await in_thread(self._site.ledger.calls.send, [node], f"{run_id} {flow}")
        self._tell_pages(decided)
        if decided.held_up:
            self._held_up.set()
        if self._queue.called:
            self._housework.set()
        if self._backlog or self._look_again:
            self._look_due.set()

    async def _look(self) -> None:
        """Read what is new from Prefect: beside the passes, since no grant is to wait for that.

        In half the time, of a server that is slow.
        """
        self._look_again = bool(self._new)  # a pass takes these in first
        if not self._house_kept or self._look_again:
            return
        begun_s = self._site.clock.monotonic_s()
        whole = self._whole_look.is_due()
        due = self._site.clock.now() + timedelta(seconds=_AHEAD_S)
        known = await anyio.to_thread.run_sync(self._queue.known)
        first_page = PAGE if whole else SHORT_PAGE
        new = await self._backlog.part(known, due, first_page=first_page)
        self._offers = await self._offered(new)
        self._new = new
        if new:
            self._wake.set()
        elif self._backlog:  # those that were read next have been cancelled
            self._look_due.set()
        await anyio.sleep(self._site.clock.monotonic_s() - begun_s)

    async def _offered(self, new: list[FlowRun]) -> list[Offer]:
        """Those of *new* that are this installation's; the others have failed."""
        flow_names = await self._pool.flow_names(new)
        for wrong_id, why in refused(new, flow_names).items():
            await self._pool.write_state(wrong_id, Failed(message=why))
        offered, names = offers(new, flow_names), {str(run.id): run.name for run in new}
        if not {offer.queue for offer in offered} <= self._pool.queues:
            await keep_gates(self._site, self._pool, await self._nodes())
        for offer in offered:  # first: what is in the ledger is not offered again
            if offer.name != names[offer.run_id]:
                await self._pool.rename(offer.run_id, offer.name)
        return offered

    def _tell_pages(self, decided: Pass) -> None:
        for run_id in (*decided.refused, *decided.granted):
            self._pages.over(run_id)
            self._members_due.set()
        if decided.granted:
            self._unnoted += decided.granted
            self._granted.set()
            self._ranks_due.set()
        for run_id, sentence in decided.waiting.items():
            logged, planned = run_id in decided.logged, run_id in decided.planned
            self._pages.say(run_id, sentence, logged=logged, planned=planned)

    async def _go_on_granting(self) -> None:
        """Begin a pass when flow processes have taken up grants that held other runs up."""
        await self._held_up.wait()
        if await anyio.to_thread.run_sync(self._queue.may_claim):
            self._held_up.clear()
            self._wake.set()

    async def _note_granted(self) -> None:
        """Have Prefect say of what was granted that it is Pending: beside its start."""
        granted, self._unnoted = self._unnoted, []
        async with anyio.create_task_group() as tasks:
            for run_id in granted:
                tasks.start_soon(self._pool.note_granted, run_id)

    async def _start_ranks(self) -> None:
        """Let the ranks of gangs begin: at once after a grant, beside rank 0, and now and then."""
        await start_ranks(self._site, self._pool)

    async def _call_members(self) -> None:
        """Let the next members of arrays come: at once after a grant, and now and then."""
        if await call_members(self._site, self._pool, self._queue.members_ahead):
            self._look_due.set()
            if self._queue.members_ahead > 1:
                self._members_due.set()

    async def _play(self) -> None:
        """Tell by when the runs of the queue start: beside the passes, which must not wait.

        Of a queue of thousands it takes seconds of a processor that others need, too: so it
        has a tenth of the time, in a process of its own.
        """
        if self._queue.is_empty and not self._explained:  # else what was played is to be forgotten
            return
        begun_s = self._site.clock.monotonic_s()
        pool = self._site.settings.pool
        found = await apart(self._site, pool, play_queue, pool, self._explained)
        self._explained = found.turns
        if found.run_id:
            self._pages.explain(found.run_id, found.text)
        await anyio.sleep(_PLAY_PAUSE * (self._site.clock.monotonic_s() - begun_s))

    # -- beside it ----------------------------------------------------------------------

    async def _nodes(self) -> frozenset[str]:
        """Names of the pool's nodes."""
        known = await anyio.to_thread.run_sync(self._site.ledger.nodes.all)
        return frozenset(n.node.name for n in known if n.node.pool == self._site.settings.pool)

    async def _keep_house(self) -> None:
        nodes = await self._nodes()
        new_settings = await keep_blocks(self._site, self._pool, nodes)
        new_gates = await keep_gates(self._site, self._pool, nodes)
        if new_settings or new_gates or not self._house_kept:
            self._house_kept = True
            self._look_due.set()
            self._wake.set()

    async def _agree(self) -> None:
        called = self._called | self._queue.called
        self._called, self._queue.called = set(), set()
        whole = self._whole_round.is_due()  # else it was woken for something
        who = self._site, self._reconciler, self._pool
        mendings = await agree_with_prefect(*who, called, whole=whole)
        if changed := {each.change for each in mendings} - {Change.NOTE_TOLD}:
            self._wake.set()
        if changed - ON_PREFECT:  # what has ended in the ledger is told
            self._housework.set()

    async def _waits(self, run_id: str) -> bool:
        """Whether the ledger has the run waiting now, and not for its user."""
        run = await anyio.to_thread.run_sync(self._site.ledger.runs.get, run_id)
        return run.state is RunState.WAITING and run.suspended_at is None

    async def _tell_people(self) -> None:
        """At once when a node tells of news, and now and then."""
        await tell_people(self._site)

    async def _tidy(self) -> None:
        """Let go of code that members sent and nobody uses: no node may."""
        if self._house_kept:
            await anyio.to_thread.run_sync(tidy_code, self._site)

    async def _tell(self) -> None:
        """Write onto the pages of runs that wait; apart, since no grant is to wait for it.

        In a quarter of the time: Prefect's server has the starts of runs to write down, too.
        """
        await self._pages.news.wait()
        begun_s = self._site.clock.monotonic_s()
        await self._pages.write()
        await anyio.sleep(_PAGES_PAUSE * (self._site.clock.monotonic_s() - begun_s))

    async def _listen(self) -> None:
        """Act the moment a run is scheduled or its user wants something.

        It listens alone: else the server would tell each node of every run.
        """
        async with aclosing(events()) as all_news:
            async for told in all_news:
                if told.news is News.ASKED:
                    self._called.add(told.run_id)
                    self._housework.set()
                self._look_due.set()

    async def _hear(self) -> None:
        """Look at the queue when a node or the gateway says so."""
        calls, name = self._site.ledger.calls, scheduler_of(self._site.settings.pool)
        wait = partial(calls.wait, name, _HEARD_WITHIN_S)
        while True:
            if await anyio.to_thread.run_sync(wait, limiter=self._call_thread):
                self._ended.set()
                self._housework.set()
                self._wake.set()


async def _main(site: Site) -> None:
    async with get_client() as client:
        leads = Scheduler(
            site, client, queue=PoolQueue(site), reconciler=Reconciler(site),
            daemon=scheduler_daemon(site.settings),
        )  # fmt: skip
        await leads.lead()


def main() -> None:
    """Be the scheduler of this node's pool where nobody else is."""
    be_leader(scheduler_daemon, _main)


def be_leader(
    daemon_of: Callable[[Settings], Daemon], lead: Callable[[Site], Coroutine[Any, Any, None]]
) -> None:
    """Be the daemon of this node that leads pools, by *lead*; the process ends with it."""
    # A pass asks the database hundreds of things: after each answer it would wait for 5 ms while
    # the event loop is at work.
    sys.setswitchinterval(0.0005)
    # Prefect has set up the root logger, where this was forked or has imported it.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every question
    # What it is doing is done anew by who leads next; grants and jobs stay where they are.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    site = current_site()
    daemon_of(site.settings).claim()
    # What is imported stays: without it a look at a long queue makes far fewer objects than the
    # collector would go through for it.
    fork_helper()
    asyncio.run(lead(site))
    os._exit(0)  # a thread may wait for calls still


if __name__ == "__main__":
    main()
