"""Telemetry points: a second each for an hour, a minute each for a week, then gone."""

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Text, cast, delete, func, text
from sqlmodel import col, select

from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.observed_tables import TelemetryRow
from headway.model.telemetry import TelemetryPoint

_POINT = tuple(each.name for each in fields(TelemetryPoint))
_INSERT = text(
    "INSERT INTO telemetry (node, {0}) "  # noqa: S608 - of names of ours alone
    "SELECT node, {0} FROM json_populate_recordset(NULL::telemetry, CAST(:rows AS json))".format(
        ", ".join(_POINT)
    )
)
"""One parameter, however many points: they are written every ten seconds on each node, and to build
a statement with twenty of each took more than all else of sampling."""
RETENTION = {1: timedelta(hours=1), 60: timedelta(days=7)}
"""How long points of each period (seconds) are kept: at most 3,600 + 10,080
for the host and for each GPU of a node."""


class Telemetry(Repository):
    """The telemetry table."""

    def append(self, node: str, points: Sequence[TelemetryPoint]) -> None:
        """Keep *points* of *node*, and forget what its retention is over for.

        Times in the ledger are the database's: the newest point is taken to be
        of this moment, the others keep their distance to it.
        """
        if not points:
            return
        with self._database.transaction() as session:
            moment = now(session)
            shift = moment - max(point.at for point in points)
            rows = [
                {name: getattr(each, name) for name in _POINT}
                | {"at": (each.at + shift).isoformat(), "node": node}
                for each in points
            ]
            session.execute(_INSERT, {"rows": json.dumps(rows, default=dict)})
            for period_s, kept in RETENTION.items():
                session.execute(
                    delete(TelemetryRow).where(
                        col(TelemetryRow.node) == node,
                        col(TelemetryRow.period_s) == period_s,
                        col(TelemetryRow.at) < moment - kept,
                    )
                )

    def series(
        self, node: str, *, gpu: str = "", period_s: int = 1, last_s: float = 3600.0
    ) -> list[TelemetryPoint]:
        """Points of the host or of one GPU over the last *last_s* seconds, oldest first."""
        own = col(TelemetryRow.node) == node, col(TelemetryRow.gpu) == gpu
        return self._points(period_s, last_s, *own).get(node, [])

    def recent(self, *, period_s: int, last_s: float) -> dict[str, list[TelemetryPoint]]:
        """By node, the points of the host and of all GPUs over *last_s* seconds, oldest first."""
        return self._points(period_s, last_s)

    def _points(
        self, period_s: int, last_s: float, *which: ColumnElement[bool]
    ) -> dict[str, list[TelemetryPoint]]:
        with self._database.reading() as session:
            since = now(session) - timedelta(seconds=last_s)
            lately = col(TelemetryRow.period_s) == period_s, col(TelemetryRow.at) >= since
            query = select(TelemetryRow).where(*lately, *which).order_by("at")
            found: dict[str, list[TelemetryPoint]] = {}
            for row in session.exec(query):
                found.setdefault(row.node, []).append(record(TelemetryPoint, row))
            return found

    def busy_alone_frac(
        self, node: str, run_id: str, gpus: Collection[str], since: datetime
    ) -> float | None:
        """How busy a run's *gpus* were, as a mean over the minutes in which they were its alone.

        None where no minute since then is known.
        """
        runs = cast(TelemetryRow.run_bytes, Text)
        query = select(func.avg(TelemetryRow.busy_frac)).where(
            TelemetryRow.node == node,
            TelemetryRow.period_s == 60,
            TelemetryRow.at > since,
            col(TelemetryRow.gpu).in_(gpus),
            runs.startswith(json.dumps({run_id: 0})[:-2], autoescape=True),
            ~runs.contains(","),  # no other run's process was on it
        )
        with self._database.reading() as session:
            found: float | None = session.scalar(query)
            return found
