"""What came in at the gateway: whose each run is before there is a run, by its key in Prefect."""

from headway.ledger.access_tables import SubmissionRow
from headway.ledger.audit_log import Act, note
from headway.ledger.columns import insert_new, now
from headway.ledger.database import Repository


class Submissions(Repository):
    """The submission table. A run whose key is not in it came by Prefect's own API."""

    def add(self, key: str, *, owner: str, team: str, act: Act) -> None:
        """Note that *owner* of *team* submits a job whose run will have *key*, with its *act*.

        Idempotent: whose run it is does not change when it is submitted once more.
        """
        with self._database.transaction() as session:
            note(session, act)
            row = SubmissionRow(key=key, owner=owner, team=team, at=now(session))
            insert_new(session, row)

    def whose(self, key: str) -> tuple[str, str] | None:
        """Owner and team of the run with *key*; None where it did not come in at the gateway."""
        with self._database.reading() as session:
            row = session.get(SubmissionRow, key)
            return None if row is None else (row.owner, row.team)
