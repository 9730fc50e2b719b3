"""What was said of when waiting runs start, against when they did."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import update
from sqlmodel import col, select

from headway.ledger.columns import among, insert_all_new
from headway.ledger.database import Repository
from headway.ledger.engine_tables import EnginePoolRow
from headway.ledger.observed_tables import StartForecastRow
from headway.ledger.tables import RunRow
from headway.model.run import RunState
from headway.model.start_forecast import StartForecast

_AT_ONCE = 1000


class Starts(Repository):
    """The table of start forecasts, and what was learnt from it."""

    def keep(self, forecasts: Sequence[StartForecast]) -> None:
        """Keep what was said just now."""
        for first in range(0, len(forecasts), _AT_ONCE):
            part = forecasts[first : first + _AT_ONCE]
            with self._database.transaction() as session:
                insert_all_new(session, [StartForecastRow(**asdict(said)) for said in part])

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

    def newest(self, limit: int, pool: str = "") -> list[StartForecast]:
        """The newest *limit* forecasts whose runs have started or wait still, newest first.

        Of *pool*, which is an engine's; without one those that were played for pools of nodes.
        """
        its = select(RunRow.run_id).where(RunRow.run_id == StartForecastRow.run_id)
        engines = col(RunRow.pool).in_(select(EnginePoolRow.pool))
        of_pool = its.where(RunRow.pool == pool).exists() if pool else ~its.where(engines).exists()
        waits = select(RunRow.run_id).where(
            RunRow.run_id == StartForecastRow.run_id, RunRow.state == RunState.WAITING
        )
        query = (
            select(StartForecastRow)
            .where(of_pool, col(StartForecastRow.started_at).is_not(None) | waits.exists())
            .order_by(col(StartForecastRow.said_at).desc(), "run_id")
        )
        return self._records(StartForecast, query.limit(limit))

    def of_waiting(self, run_ids: Sequence[str]) -> dict[str, list[StartForecast]]:
        """What was said of each of these runs since it waits, oldest first."""
        found: dict[str, list[StartForecast]] = {}
        query = select(StartForecastRow).where(
            among(StartForecastRow.run_id, run_ids), col(StartForecastRow.started_at).is_(None)
        )
        for said in self._records(StartForecast, query.order_by("said_at")):
            found.setdefault(said.run_id, []).append(said)
        return found
