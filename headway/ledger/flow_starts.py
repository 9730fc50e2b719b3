"""How often flow processes were started for runs lately."""

from collections.abc import Sequence
from datetime import timedelta

from sqlmodel import col, select, update

from headway.ledger.columns import from_now, now
from headway.ledger.database import Repository
from headway.ledger.tables import LeaseRow, RunRow


class FlowStarts(Repository):
    """Counts in the run table, each for a while; after it a new count begins."""

    def note(self, run_id: str, within_s: float, take_up_s: float) -> int:
        """A flow process is about to be started for the run.

        Args:
            run_id: The run.
            within_s: So long starts are counted together.
            take_up_s: So long its lease goes on to wait for that process from now on.

        Returns:
            The how-manieth that is of a count that began at most *within_s* ago; 0 for a flow
            run that the ledger does not know.
        """
        with self._database.transaction() as session:
            run = session.get(RunRow, run_id, with_for_update=True)
            if run is None:
                return 0
            moment, since = now(session), run.flow_starts_since
            if since is None or since < moment - timedelta(seconds=within_s):
                run.flow_starts, run.flow_starts_since = 0, moment
            run.flow_starts += 1
            until = moment + timedelta(seconds=take_up_s)
            untaken = col(LeaseRow.start_by).is_not(None), col(LeaseRow.released_at).is_(None)
            own = col(LeaseRow.run_id) == run_id
            session.execute(update(LeaseRow).where(own, *untaken).values(start_by=until))
            return run.flow_starts

    def lately(self, run_ids: Sequence[str], within_s: float) -> dict[str, int]:
        """So many of each run, where a count began at most *within_s* ago."""
        with self._database.reading() as session:
            since = from_now(-timedelta(seconds=within_s))
            counted = select(RunRow.run_id, RunRow.flow_starts).where(
                col(RunRow.run_id).in_(run_ids), col(RunRow.flow_starts_since) >= since
            )
            return dict(session.exec(counted).all())
