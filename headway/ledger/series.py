"""Progress points and traces."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Select, Text, cast, func
from sqlalchemy import select as sa_select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.ledger.columns import among, db_now
from headway.ledger.database import Repository
from headway.ledger.fences import fenced, leased
from headway.ledger.observed_tables import ProgressRow, TraceRow
from headway.ledger.tables import RunRow
from headway.model.lease import Fence
from headway.model.progress import NAN, MetricSpan, ProgressPoint
from headway.model.trace import Trace

MAX_POINTS = 20_000
"""Points kept of one attempt; what comes after replaces the newest one."""
_FEW, _LATELY = 8, 1_000
"""Each metric's last value is in so many points with metrics among the last so many points: a bar
moves between lines that have any, and training and validation have lines of their own."""
_HAS_METRICS = cast(col(ProgressRow.metrics), Text) != "{}"
_TRACE_COLUMNS = ("run_id", "source", "team", "network", "gpu_type", "gpus", "exit")


class Progress(Repository):
    """The progress table."""

    def append(self, fence: Fence, points: Sequence[ProgressPoint], *, first: int) -> None:
        """Keep *points*, numbered from *first*. Points that are there already stay.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        if not points:
            return
        run_id, attempt = fence.run_id, fence.attempt
        with self._database.transaction() as session:
            fenced(session, fence)
            newest = _newest_number(session, run_id, attempt)
            for number, point in enumerate(points, start=first):
                if newest is not None and number <= newest and number < MAX_POINTS - 1:
                    continue
                session.merge(_progress_row(run_id, attempt, min(number, MAX_POINTS - 1), point))

    def latest(self, run_id: str) -> ProgressPoint | None:
        """The newest point of the newest attempt that has any, with the last of each metric."""
        return self.latest_of([run_id]).get(run_id)

    def latest_of(self, run_ids: Sequence[str]) -> dict[str, ProgressPoint]:
        """The same of each of these runs; nothing of those that have none."""
        with self._database.reading() as session:
            newest = {row.run_id: _point(row) for row in session.exec(_newest_of(run_ids))}
            for run_id, metrics in session.execute(_last_metrics_of(run_ids)):
                if run_id in newest:  # else it has told its first only now
                    newest[run_id] = _with_older(newest[run_id], metrics)
            return newest

    def metrics(self, run_id: str, attempt: int) -> dict[str, MetricSpan]:
        """What each metric of an attempt was."""
        spans: dict[str, MetricSpan] = {}
        own = ProgressRow.run_id == run_id, ProgressRow.attempt == attempt
        with self._database.reading() as session:
            query = select(ProgressRow.metrics).where(*own, _HAS_METRICS).order_by("number")
            for said, number in (each for told in session.exec(query) for each in told.items()):
                name = said.removesuffix(NAN)
                value = number if name == said else math.nan
                _, low, high = spans.get(name, (value, math.inf, -math.inf))
                spans[name] = MetricSpan(value, min(low, value), max(high, value))
        return spans

    def series(self, run_id: str, attempt: int) -> list[ProgressPoint]:
        """All points of an attempt, in order."""
        with self._database.reading() as session:
            return _points(session, run_id, attempt)

    def thinned(self, run_id: str, attempt: int, most: int) -> list[ProgressPoint]:
        """At most *most* points of an attempt, evenly over all of it, and the last one."""
        with self._database.reading() as session:
            newest = _newest_number(session, run_id, attempt)
            if newest is None:
                return []
            every = -(-(newest + 1) // most)
            number = col(ProgressRow.number)
            some = (number % every == 0) | (number == newest)
            return _points(session, run_id, attempt, some)


def _points(
    session: Session, run_id: str, attempt: int, *which: ColumnElement[bool]
) -> list[ProgressPoint]:
    own = ProgressRow.run_id == run_id, ProgressRow.attempt == attempt
    query = select(ProgressRow).where(*own, *which).order_by("number")
    return [_point(row) for row in session.exec(query)]


def _newest_of(run_ids: Sequence[str]) -> SelectOfScalar[ProgressRow]:
    """The newest row of each run: found by the key, however many rows there are."""
    one, other = aliased(ProgressRow), aliased(ProgressRow)
    # Said, since a subquery in a subquery would look through all runs by itself.
    of_run = select(func.max(one.attempt)).where(one.run_id == RunRow.run_id).correlate(RunRow)
    attempt = of_run.scalar_subquery()
    same = other.run_id == RunRow.run_id, other.attempt == attempt
    number = select(func.max(other.number)).where(*same).correlate(RunRow).scalar_subquery()
    return select(ProgressRow).where(
        among(RunRow.run_id, run_ids),
        ProgressRow.run_id == RunRow.run_id,
        ProgressRow.attempt == attempt,
        ProgressRow.number == number,
    )


def _with_older(point: ProgressPoint, metrics: Mapping[str, float]) -> ProgressPoint:
    """*point* with those of *metrics* of which it says nothing."""
    known = {name.removesuffix(NAN) for name in point.metrics}
    older = {name: value for name, value in metrics.items() if name.removesuffix(NAN) not in known}
    return point._replace(metrics={**older, **point.metrics})


def _last_metrics_of(run_ids: Sequence[str]) -> Select[tuple[str, dict[str, float]]]:
    """Metrics of the newest points of each run that have any, the newest first."""
    newest = _newest_of(run_ids).subquery()
    number = col(ProgressRow.number)
    told = (
        sa_select(col(ProgressRow.metrics), number)
        .where(col(ProgressRow.run_id) == newest.c.run_id)
        .where(col(ProgressRow.attempt) == newest.c.attempt)
        .where(number > newest.c.number - _LATELY, _HAS_METRICS)
        .order_by(number.desc())
        .limit(_FEW)
        .lateral()
    )
    return sa_select(newest.c.run_id, told.c.metrics).order_by(told.c.number.desc())


class Traces(Repository):
    """The trace table."""

    def add(self, traces: Iterable[Trace]) -> int:
        """Keep *traces*; one whose `run_id` is there already is left out. How many are new."""
        with self._database.transaction() as session:
            return sum(_keep_trace(session, trace) for trace in traces)

    def learn(self, fence: Fence, trace: Trace) -> None:
        """Keep the trace of *fence*'s attempt, once.

        Raises:
            LeaseLost: Another attempt or another lease has the run.
        """
        with self._database.transaction() as session:
            (leased if fence.token else fenced)(session, fence)  # its run may have ended
            _keep_trace(session, trace)

    def all(self, source: str | None = None) -> list[Trace]:
        """All traces, or those of one source, oldest first."""
        with self._database.reading() as session:
            query = select(TraceRow).order_by("trace_id")
            if source is not None:
                query = query.where(TraceRow.source == source)
            return _readable(session.exec(query))

    def newest(self, network: str, limit: int, team: str | None) -> list[Trace]:
        """The *limit* newest traces of *network* (the recipe, for runs that name none).

        Of those that *team* may know: its own, and what is nobody's; None for all.
        """
        query = select(TraceRow).where(TraceRow.network == network)
        if team is not None:
            query = query.where(col(TraceRow.team).in_(["", team]))
        with self._database.reading() as session:
            newest = query.order_by(col(TraceRow.trace_id).desc()).limit(limit)
            return _readable(session.exec(newest))

    def count(self) -> int:
        """How many traces there are."""
        with self._database.reading() as session:
            return session.exec(select(func.count()).select_from(TraceRow)).one()


def _readable(rows: Iterable[TraceRow]) -> list[Trace]:
    # Those of runs before 0.2 had no team when they were written.
    return [replace(row.document, team=row.team) for row in rows if row.document is not None]


def _newest_number(session: Session, run_id: str, attempt: int) -> int | None:
    own = ProgressRow.run_id == run_id, ProgressRow.attempt == attempt
    return session.exec(select(func.max(ProgressRow.number)).where(*own)).one()


def _keep_trace(session: Session, trace: Trace) -> bool:
    """Whether it is new."""
    if trace.run_id is not None and _is_known(session, trace.run_id):
        return False
    columns = {name: getattr(trace, name) for name in _TRACE_COLUMNS}
    session.add(TraceRow(**columns | {"recorded_at": db_now()}, document=trace))
    return True


def _is_known(session: Session, run_id: str) -> bool:
    query = select(TraceRow.trace_id).where(TraceRow.run_id == run_id)
    return session.exec(query).first() is not None


def _progress_row(run_id: str, attempt: int, number: int, point: ProgressPoint) -> ProgressRow:
    values = {**point._asdict(), "metrics": dict(point.metrics)}
    return ProgressRow(run_id=run_id, attempt=attempt, number=number, **values)


def _point(row: ProgressRow) -> ProgressPoint:
    return ProgressPoint(row.t_s, row.iteration, row.epoch, row.total, row.metrics)
