"""Pools of engines, and what becomes of runs there: a run of theirs is on an engine, never leased.

While a cluster has a run in its queue it waits here, too; its reason is the cluster's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select

from headway.errors import InvalidInput
from headway.ledger.attempts import note_claim, note_start
from headway.ledger.columns import among, now
from headway.ledger.database import Repository
from headway.ledger.engine_tables import EnginePoolRow, pools_as_they_are
from headway.ledger.fences import fenced
from headway.ledger.leaders import in_term
from headway.ledger.nodes import of_the_site
from headway.ledger.notices import note_started
from headway.ledger.run_rows import move
from headway.ledger.tables import NodeRow
from headway.model.engine import EnginePool
from headway.model.lease import Fence
from headway.model.run import RunState
from headway.model.term import Term


@dataclass(frozen=True, slots=True)
class EnginePoolRecord:
    """A work pool whose runs an engine starts, as the ledger knows it."""

    pool: str
    engine: str
    node: str
    """The submit host: the node of this site whose follower submits runs."""
    has: EnginePool
    """What it lets a job have, as of when it was read; its own name for the pool is there."""
    read_at: datetime


class Engines(Repository):
    """The table of pools of engines, and the steps of runs there."""

    def pools(self) -> dict[str, EnginePoolRecord]:
        """All of them, by the name of the work pool; one that cannot be read is left out."""
        query = select(EnginePoolRow).where(col(EnginePoolRow.has).is_not(None))
        found = self._records(EnginePoolRecord, query)
        return {each.pool: each for each in found}

    def keep(self, engine: str, node: str, pools: Sequence[tuple[str, EnginePool]]) -> None:
        """These are the pools of *engine* at submit host *node* now: work pool, and what it has.

        Raises:
            InvalidInput: Nodes of the site have joined in one of them: it would start its runs,
                too.
        """
        with self._database.transaction() as session:
            pools_as_they_are(session)
            nodes = of_the_site().where(among(NodeRow.pool, [pool for pool, _ in pools]))
            if (other := session.exec(nodes).first()) is not None:
                allowed = f"node {other.name} has joined in it: its runs are its nodes' to start"
                raise InvalidInput("pool", other.pool, allowed)
            for pool, has in pools:
                session.merge(
                    EnginePoolRow(
                        pool=pool, engine=engine, node=node, has=has, read_at=now(session)
                    )
                )

    def begin(self, fence: Fence, term: Term, *, engine: str, engine_id: str, node: str) -> None:
        """The engine has started its job: the run is under way. Idempotent.

        Args:
            fence: Its attempt.
            term: In which the follower leads its pool.
            engine: Whose job it is.
            engine_id: What the engine calls it.
            node: The submit host, where its files are.

        Raises:
            LeaseLost: Another attempt has the run, or it has ended.
            TermOver: Another follower leads the pool by now.
        """
        with self._database.transaction() as session:
            in_term(session, term)
            run, _ = fenced(session, fence)
            run.runtime, run.container, run.node = engine, engine_id, node
            if run.state is RunState.RUNNING:
                return
            move(run, RunState.CLAIMED)
            run.claimed_at = run.started_at = now(session)
            note_claim(session, run)
            run.resource, run.reason, run.expected_start_at = None, "", None
            move(run, RunState.RUNNING)
            note_start(session, run)
            note_started(session, run)

    def waits_again(self, fence: Fence, term: Term, reason: str) -> None:
        """The engine has put its job back into its queue: the same attempt waits. Idempotent.

        Raises:
            LeaseLost: Another attempt has the run, or it has ended.
            TermOver: Another follower leads the pool by now.
        """
        with self._database.transaction() as session:
            in_term(session, term)
            run, _ = fenced(session, fence)
            if run.state is RunState.RUNNING:
                move(run, RunState.WAITING)
                run.reason, run.claimed_at, run.started_at = reason, None, None
