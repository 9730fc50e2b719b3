"""Tokens for the gateway: made, looked up by their digest, revoked."""

from collections.abc import Collection
from datetime import timedelta

from sqlmodel import col, select

from headway.ledger.access_tables import AccessTokenRow
from headway.ledger.audit_log import Act, note
from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.model.access import AccessToken, Scope, scopes_from


class AccessTokens(Repository):
    """The access_token table. Each change notes in the audit table who made it."""

    def add(
        self,
        digest: str,
        *,
        user: str,
        team: str,
        scopes: Collection[Scope],
        lifetime_s: float,
        actor: str,
    ) -> AccessToken:
        """Keep a new token by its *digest*; it is valid for *lifetime_s* from now on."""
        words = " ".join(sorted(scope.value for scope in scopes))
        with self._database.transaction() as session:
            moment = now(session)
            row = AccessTokenRow(
                digest=digest,
                user_name=user,
                team=team,
                scopes=words,
                made_at=moment,
                expires_at=moment + timedelta(seconds=lifetime_s),
            )
            session.add(row)
            session.flush()
            made = _token(row)
            told = {
                "token": str(made.token_id),
                "team": team,
                "scopes": words,
                "expires_at": row.expires_at.isoformat(),
            }
            note(session, Act(actor, "user.add", user, told))
            return made

    def valid(self, digest: str) -> AccessToken | None:
        """The token with this *digest*, if it lets anybody in at this moment."""
        with self._database.reading() as session:
            query = select(AccessTokenRow).where(AccessTokenRow.digest == digest)
            row = session.exec(query).one_or_none()
            found = None if row is None else _token(row)
            return found if found is not None and found.is_valid(now(session)) else None

    def all(self) -> list[AccessToken]:
        """Every token that was ever made, newest first."""
        query = select(AccessTokenRow).order_by(col(AccessTokenRow.token_id).desc())
        with self._database.reading() as session:
            return [_token(row) for row in session.exec(query)]

    def revoke(
        self, user: str, *, actor: str, team: str | None = None, token_id: int | None = None
    ) -> list[AccessToken]:
        """Let nobody in any more by the tokens of *user*, of *team* alone or by that *token_id*.

        Returns:
            Those that were valid until now, or would have expired later.
        """
        query = (
            select(AccessTokenRow)
            .where(AccessTokenRow.user_name == user, col(AccessTokenRow.revoked_at).is_(None))
            .order_by(col(AccessTokenRow.token_id))
            .with_for_update()
        )
        if team is not None:
            query = query.where(AccessTokenRow.team == team)
        if token_id is not None:
            query = query.where(AccessTokenRow.token_id == token_id)
        with self._database.transaction() as session:
            moment = now(session)
            revoked = []
            for row in session.exec(query).all():
                row.revoked_at = moment
                revoked.append(_token(row))
                told = {"token": str(row.token_id)}
                note(session, Act(actor, "user.revoke", user, told))
            return revoked


def _token(row: AccessTokenRow) -> AccessToken:
    return record(AccessToken, row, user=row.user_name, scopes=scopes_from(row.scopes.split()))
