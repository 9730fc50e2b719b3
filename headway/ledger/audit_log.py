"""Who did what: rows that are only ever added, in the transaction of the act itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlmodel import Session, col, select

from headway.ledger.access_tables import AuditRow
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.model.access import AuditEntry


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody is about to do; `note` makes it a row."""

    actor: str
    act: str
    subject: str
    details: Mapping[str, str] = field(default_factory=dict)


def note(session: Session, act: Act) -> None:
    """Add the row of *act* to the transaction that does it: both are there, or neither."""
    session.add(
        AuditRow(
            at=now(session),
            actor=act.actor,
            act=act.act,
            subject=act.subject,
            details=dict(act.details),
        )
    )


class AuditLog(Repository):
    """Reads the audit table, and writes acts whose effect is elsewhere than in the ledger."""

    def write(self, act: Act) -> None:
        """Note an act that another system carries out, before it is asked to."""
        with self._database.transaction() as session:
            note(session, act)

    def newest(self, limit: int, *, actor: str = "", subject: str = "") -> list[AuditEntry]:
        """The newest *limit* acts, newest first; only those of *actor* or on *subject* if given."""
        query = select(AuditRow).order_by(col(AuditRow.entry_id).desc()).limit(limit)
        if actor:
            query = query.where(AuditRow.actor == actor)
        if subject:
            query = query.where(AuditRow.subject == subject)
        return self._records(AuditEntry, query)
