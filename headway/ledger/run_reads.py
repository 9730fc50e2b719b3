"""What is read of runs: one, those of a node, those that wait, and how many there are."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import and_, func, or_, true
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import RunUnknown
from headway.estimate.usual import Lasted, kind_of
from headway.ledger.database import Repository
from headway.ledger.records import RunRecord
from headway.ledger.run_rows import by_id, check_askable, chosen, run_record, run_row, runs_of
from headway.ledger.tables import RunRow
from headway.model.engine import ENGINES
from headway.model.run import GRANTED, ExitKind, RunState

_NEWEST = col(RunRow.submitted_at).desc()


class RunReads(Repository):
    """Reads of the run table."""

    def get(self, run_id: str) -> RunRecord:
        """The run with this id. Raises `RunUnknown`."""
        check_askable(run_id)
        with self._database.reading() as session:
            return run_record(run_row(session, run_id))

    def find(
        self,
        text: str,
        *,
        still_going: bool = False,
        team: str | None = None,
        owner: str | None = None,
    ) -> RunRecord:
        """The run with this id, id prefix or name; of several of one name the newest.

        Args:
            text: Id, prefix or name.
            still_going: Of several of one name the newest that has not ended, if there is one.
            team: Only a run of this team; None for any. Another team's does not exist then.
            owner: Of several of one name theirs come before all others.

        Raises:
            RunUnknown: None, or a prefix that several runs share.
        """
        check_askable(text)
        with self._database.reading() as session:
            seen = chosen(RunRow, team=team)
            row = by_id(session, seen, RunRow.run_id, text)
            if row is None:
                ended = (col(RunRow.state) == RunState.ENDED,) if still_going else ()
                named = seen.where(RunRow.name == text)
                named = named.order_by(col(RunRow.owner) != (owner or ""), *ended, _NEWEST)
                row = session.exec(named.limit(1)).first()
            if row is None:
                raise RunUnknown(text)
            return run_record(row)

    def all(
        self, *, limit: int | None = None, states: Sequence[RunState] = tuple(RunState)
    ) -> list[RunRecord]:
        """Runs in any of *states*, newest first."""
        query = select(RunRow).where(col(RunRow.state).in_(states)).order_by(_NEWEST)
        return self._found(query.limit(limit))

    def listed(
        self,
        limit: int,
        *,
        after: RunRecord | None = None,
        team: str | None = None,
        owner: str | None = None,
        name: str = "",
        since: datetime | None = None,
        members: bool = True,
        ends: Collection[ExitKind] | None = None,
    ) -> list[RunRecord]:
        """The newest *limit* runs behind *after*, newest first; no parts of gangs.

        They go by time and id, so that none comes twice and none is left out whatever is submitted
        meanwhile.

        Args:
            limit: So many at most.
            after: The last run of the page before; None for the first page.
            team: See `chosen`.
            owner: See `chosen`.
            name: See `chosen`.
            since: See `chosen`.
            members: With members of arrays.
            ends: Of those whose end Prefect knows, those that ended so; None for all.
        """
        query = chosen(RunRow, team=team, owner=owner, name=name, since=since)
        query = query.where(col(RunRow.gang_id).is_(None))
        at, run_id = col(RunRow.submitted_at), col(RunRow.run_id)
        if after is not None:
            same = and_(at == after.submitted_at, run_id < after.run_id)
            query = query.where(or_(at < after.submitted_at, same))
        if not members:
            query = query.where(col(RunRow.array_id).is_(None))
        if ends is not None:
            told = col(RunRow.told_end_at)
            query = query.where(or_(told.is_(None), col(RunRow.exit_kind).in_(ends)))
        return self._found(query.order_by(at.desc(), run_id.desc()).limit(limit))

    def on_node(self, node: str) -> list[RunRecord]:
        """Runs that were granted something on *node* and have not ended, newest first.

        None of an engine: its follower answers for them, whose node has no more than their files.
        """
        own = or_(col(RunRow.runtime).is_(None), col(RunRow.runtime).not_in(ENGINES))
        granted = col(RunRow.state).in_(GRANTED), RunRow.node == node, own
        return self._found(select(RunRow).where(*granted).order_by(_NEWEST))

    def of(self, run_ids: Sequence[str]) -> dict[str, RunRecord]:
        """These runs by their ids; nothing of those that no worker has seen yet."""
        with self._database.reading() as session:
            return {record.run_id: record for record in runs_of(session, run_ids)}

    def waiting(self, pool: str) -> list[RunRecord]:
        """Every run that waits in a pool, by priority and submission; `policy.plan` decides."""
        query = select(RunRow).where(RunRow.state == RunState.WAITING, RunRow.pool == pool)
        in_line = (col(RunRow.priority).desc(), col(RunRow.submitted_at), RunRow.run_id)
        return self._found(query.order_by(*in_line))

    def waiting_ids(self, pool: str) -> frozenset[str]:
        """Every run that waits in a pool, but for those that are suspended."""
        with self._database.reading() as session:
            waiting = RunRow.state == RunState.WAITING, RunRow.pool == pool
            query = select(RunRow.run_id).where(*waiting, col(RunRow.suspended_at).is_(None))
            return frozenset(session.exec(query))

    def waiting_page(self, pools: Collection[str], after: str, limit: int) -> list[RunRecord]:
        """The *limit* waiting runs of *pools* that follow the run *after*, by id."""
        in_pools = col(RunRow.pool).in_(pools)
        waiting = RunRow.state == RunState.WAITING, in_pools, RunRow.run_id > after
        return self._found(select(RunRow).where(*waiting).order_by("run_id").limit(limit))

    def under_way(self, pools: Collection[str]) -> list[RunRecord]:
        """Runs of *pools* that a node, or its engine, has and that have not ended, by id."""
        query = select(RunRow).where(col(RunRow.pool).in_(pools), col(RunRow.state).in_(GRANTED))
        return self._found(query.order_by("run_id"))

    def untold(self, pools: Collection[str], after: str, limit: int) -> list[RunRecord]:
        """Ended runs of *pools* whose end Prefect has not acknowledged, by id.

        Args:
            pools: The work pools.
            after: The *limit* of them that follow this id; empty for the first.
            limit: So many at most.
        """
        untold = col(RunRow.told_end_at).is_(None), RunRow.run_id > after
        ended = RunRow.state == RunState.ENDED, col(RunRow.pool).in_(pools)
        query = select(RunRow).where(*ended, *untold)
        return self._found(query.order_by("run_id").limit(limit))

    def told_ends(
        self, pools: Collection[str], before: datetime | None, limit: int
    ) -> list[RunRecord]:
        """The newest *limit* ends in *pools* that Prefect has acknowledged.

        Only of runs that ended earlier than *before*; None for the newest of all.
        """
        ended = RunRow.state == RunState.ENDED, col(RunRow.pool).in_(pools)
        query = select(RunRow).where(*ended).where(col(RunRow.told_end_at).is_not(None))
        if before is not None:
            query = query.where(col(RunRow.ended_at) < before)
        return self._found(query.order_by(col(RunRow.ended_at).desc()).limit(limit))

    def ranks(self, run_id: str, attempt: int) -> list[RunRecord]:
        """The parts of the run's attempt on other nodes that have begun, by rank."""
        parts = RunRow.gang_id == run_id, RunRow.attempt == attempt
        return self._found(select(RunRow).where(*parts).order_by("gang_rank"))

    def _found(self, query: SelectOfScalar[RunRow]) -> list[RunRecord]:
        with self._database.reading() as session:
            return [run_record(row) for row in session.exec(query)]

    def lasted(self, limit: int, team: str | None = None) -> list[Lasted]:
        """What the runs of *team* lasted that ended well, the newest *limit* of them."""
        return [lasted for _, lasted in self.lasted_since(None, limit, team).values()]

    def lasted_since(
        self, since: datetime | None, limit: int, team: str | None = None
    ) -> dict[str, tuple[datetime, Lasted]]:
        """When the runs of *team* ended that ended well after *since*, and what they lasted, by id.

        The newest first, *limit* of them at most; None for those of any time, and of any team.
        """
        ended_at = col(RunRow.ended_at)
        newest = (
            select(RunRow.run_id, ended_at, RunRow.owner, RunRow.team)
            .add_columns(col(RunRow.job), col(RunRow.measurement), col(RunRow.submitted_at))
            .add_columns(col(RunRow.prediction))
            .where(
                ended_at.is_not(None) if since is None else ended_at > since,
                true() if team is None else col(RunRow.team) == team,
                col(RunRow.exit_kind) == ExitKind.OK,
                col(RunRow.gang_id).is_(None),
            )
            .order_by(ended_at.desc())
            .limit(limit)
        )
        with self._database.reading() as session:
            return {
                run_id: (
                    ended,
                    Lasted(
                        kind_of(job, *whose),
                        took.runtime_s,
                        begun.timestamp(),
                        said.learnt_runtime_s if said else None,
                    ),
                )
                for run_id, ended, *whose, job, took, begun, said in session.execute(newest).all()
                if took and took.runtime_s
            }

    def counts(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        with self._database.reading() as session:
            query = select(RunRow.state, func.count()).group_by(col(RunRow.state))
            found = dict(session.exec(query).all())
            return {state: found.get(state, 0) for state in RunState}
