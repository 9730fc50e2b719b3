"""What was said of when waiting runs start, against when they did."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import update
from sqlmodel import col, select

from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.ledger.observed_tables import StartForecastRow
from headway.ledger.tables import RunRow, SettingRow
from headway.model.run import RunState
from headway.model.start_forecast import StartForecast

_CALIBRATION = "start_calibration"
_PLAYED = "played_starts:{}"


class Starts(Repository):
    """The table of start forecasts, and what was learnt from it."""

    def keep(self, forecasts: Sequence[StartForecast]) -> None:
        """Keep what was said just now."""
        with self._database.transaction() as session:
            for said in forecasts:
                session.merge(StartForecastRow(**asdict(said)))

    def settle(self) -> None:
        """Write down when the runs started of which something was said while they waited."""
        claimed = select(RunRow.claimed_at).where(
            RunRow.run_id == StartForecastRow.run_id,
            col(RunRow.claimed_at) >= col(StartForecastRow.said_at),
        )
        with self._database.transaction() as session:
            session.execute(
                update(StartForecastRow)
                .where(col(StartForecastRow.started_at).is_(None), claimed.exists())
                .values(started_at=claimed.scalar_subquery())
            )

    def newest(self, limit: int) -> list[StartForecast]:
        """The newest *limit* forecasts whose runs have started or wait still, newest first."""
        waits = select(RunRow.run_id).where(
            RunRow.run_id == StartForecastRow.run_id, RunRow.state == RunState.WAITING
        )
        with self._database.reading() as session:
            query = (
                select(StartForecastRow)
                .where(col(StartForecastRow.started_at).is_not(None) | waits.exists())
                .order_by(col(StartForecastRow.said_at).desc(), "run_id")
                .limit(limit)
            )
            return [record(StartForecast, row) for row in session.exec(query)]

    def of_waiting(self, run_ids: Sequence[str]) -> dict[str, list[StartForecast]]:
        """What was said of each of these runs since it waits, oldest first."""
        found: dict[str, list[StartForecast]] = {}
        with self._database.reading() as session:
            query = (
                select(StartForecastRow)
                .where(
                    col(StartForecastRow.run_id).in_(run_ids),
                    col(StartForecastRow.started_at).is_(None),
                )
                .order_by("said_at")
            )
            for row in session.exec(query) if run_ids else ():
                found.setdefault(row.run_id, []).append(record(StartForecast, row))
        return found

    def keep_played(self, pool: str, document: dict[str, Any]) -> None:
        """Keep how long the runs of a pool wait as its queue was played, for all nodes to say."""
        name = _PLAYED.format(pool)
        with self._database.transaction() as session:
            session.merge(SettingRow(name=name, document=document, updated_at=now(session)))

    def played(self, pool: str) -> dict[str, Any] | None:
        """What was last kept so of a pool; None before the first time."""
        with self._database.reading() as session:
            row = session.get(SettingRow, _PLAYED.format(pool))
            return None if row is None else row.document

    def keep_calibration(self, document: dict[str, Any]) -> None:
        """Keep what was learnt, for all nodes to say starts by."""
        with self._database.transaction() as session:
            session.merge(SettingRow(name=_CALIBRATION, document=document, updated_at=now(session)))

    def calibration(self) -> dict[str, Any] | None:
        """What was last learnt; None before the first night."""
        with self._database.reading() as session:
            row = session.get(SettingRow, _CALIBRATION)
            return None if row is None else row.document
