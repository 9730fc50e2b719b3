"""Everything of the ledger that `admin.inspection.invariants` compares, read in one transaction."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Text, cast, func
from sqlmodel import Session, SQLModel, col, select

from headway.ledger.columns import Plain, Value, among, now, readable
from headway.ledger.database import Repository
from headway.ledger.lease_rows import LIVE, leases_from
from headway.ledger.nodes import node_record, of_the_site
from headway.ledger.tables import AttemptRow, LeaseRow, NodeRow, RunRow
from headway.model.engine import ENGINES
from headway.model.inspection import SeenLedger, SeenRun
from headway.model.job_text import kept_job, stop_grace_s
from headway.model.run import RunState

_MOST_ENDS = 10_000
"""So many of the newest ends are compared with Prefect's states."""
_OPEN = col(RunRow.state) != RunState.ENDED


class Inspection(Repository):
    """Reads all that is live, whatever it says."""

    def read(self, named: Collection[str] = ()) -> SeenLedger:
        """The ledger now; *named* are runs of which something is alive on the node."""
        with self._database.reading() as session:
            live = select(LeaseRow).where(LIVE).order_by("lease_id")
            leases = tuple(leases_from(session, live))
            about = {lease.run_id for lease in leases}
            newest = _newest_ends(session)
            ended = session.scalar(select(func.count()).where(RunRow.state == RunState.ENDED))
            return SeenLedger(
                now=now(session),
                nodes=tuple(node_record(row).node for row in session.exec(of_the_site())),
                leases=leases,
                runs=newest | _full(session, about.union(named)),
                unreadable=tuple(_unreadable(session)),
                ends_beyond=max((ended or 0) - _MOST_ENDS, 0),
            )


def _newest_ends(session: Session) -> dict[str, SeenRun]:
    """Ended runs without their jobs: there may be many."""
    columns = (
        RunRow.run_id, RunRow.name, RunRow.attempt, RunRow.node, RunRow.ended_at,
        RunRow.exit_kind, RunRow.told_end_at, RunRow.gang_id,
    )  # fmt: skip
    # Untold ones first: none of them may be left out.
    order = col(RunRow.told_end_at).is_not(None), col(RunRow.ended_at).desc()
    query: Any = select(*columns).where(RunRow.state == RunState.ENDED)  # type: ignore[call-overload]  # typed for four columns at most
    return {
        run_id: SeenRun(
            run_id, name, RunState.ENDED, attempt, node, ended_at, kind, told, is_rank=bool(gang)
        )
        for run_id, name, attempt, node, ended_at, kind, told, gang in session.exec(
            query.order_by(*order).limit(_MOST_ENDS)
        )
    }


def _full(session: Session, named: set[str]) -> dict[str, SeenRun]:
    """Runs that have not ended, and those that are *named*."""
    rows = list(session.exec(select(RunRow).where(_OPEN)))
    asked = named - {row.run_id for row in rows}
    rows += session.exec(select(RunRow).where(among(RunRow.run_id, asked))).all()
    waiting = [row.run_id for row in rows if row.state is RunState.WAITING]
    since = _last_ends(session, waiting)
    return {row.run_id: _run(row, since.get(row.run_id)) for row in rows}


def _last_ends(session: Session, run_ids: list[str]) -> dict[str, datetime]:
    """When the last attempt before ended, of runs that had one."""
    query = select(AttemptRow.run_id, func.max(AttemptRow.ended_at)).where(
        among(AttemptRow.run_id, run_ids), col(AttemptRow.ended_at).is_not(None)
    )
    rows = session.exec(query.group_by(AttemptRow.run_id))
    return {run_id: at for run_id, at in rows if at is not None}


def _run(row: RunRow, last_end: datetime | None) -> SeenRun:
    since = {
        RunState.WAITING: last_end,
        RunState.CLAIMED: row.claimed_at,
        RunState.RUNNING: row.started_at,
        RunState.ENDED: row.ended_at,
    }[row.state]
    ended = row.state is RunState.ENDED
    return SeenRun(
        row.run_id,
        row.name,
        row.state,
        row.attempt,
        row.node,
        since,
        row.exit_kind if ended else None,
        row.told_end_at,
        suspended=row.suspended_at is not None,
        is_rank=row.gang_id is not None,
        on_engine=row.runtime in ENGINES,
        grace_s=stop_grace_s(row.job),
    )


def _unreadable(session: Session) -> Iterator[str]:
    """Columns of nodes and of runs that have not ended which count as not there."""
    for kind, key, which in (
        (RunRow, RunRow.run_id, _OPEN),
        (NodeRow, NodeRow.name, col(NodeRow.removed_at).is_(None)),
    ):
        for name, content in _contents(kind):
            query: Any = select(key, cast(content, Text)).where(which)
            for row, text in session.exec(query):
                if not readable(content.type, text):
                    yield f"{kind.__tablename__} {row}, column {name}"
    for row in session.exec(select(RunRow).where(_OPEN)):
        if row.job and kept_job(row.job) is None:
            yield f"run {row.run_id}, its job"


def _contents(kind: type[SQLModel]) -> Iterator[tuple[str, Any]]:
    """The columns of a table that hold documents."""
    for column in kind.__table__.columns:  # type: ignore[attr-defined]  # SQLModel does not type it
        if isinstance(column.type, (Value, Plain)):
            yield column.name, column
