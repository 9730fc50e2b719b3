"""Tokens for the gateway: made, looked up by their digest, revoked."""

from collections.abc import Collection
from datetime import timedelta

from sqlmodel import Session, col, select

from headway.ledger.access_tables import AccessTokenRow, NodeTokenRow
from headway.ledger.audit_log import Act, note
from headway.ledger.codec import record
from headway.ledger.columns import now
from headway.ledger.database import Repository
from headway.model.access import AccessToken, Scope, scopes_from
from headway.model.lease import NO_EXPIRY


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
            if row is None:
                return _of_a_node(session, digest)
            found = _token(row)
            return found if found.is_valid(now(session)) else None

    def of_node(self, digest: str) -> AccessToken | None:
        """The token with this *digest* of the node whose login opened the ledger, if it is one."""
        with self._database.reading() as session:
            return _of_a_node(session, digest)

    def keep_of_node(self, node: str, digest: str) -> None:
        """Let *node* in at the gateway by the token with this *digest*, by no earlier one."""
        with self._database.transaction() as session:
            session.merge(NodeTokenRow(node=node, digest=digest, made_at=now(session)))

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


def _of_a_node(session: Session, digest: str) -> AccessToken | None:
    """A node's, which lasts as long as its login: for its team there is no member."""
    row = session.exec(select(NodeTokenRow).where(NodeTokenRow.digest == digest)).one_or_none()
    if row is None:
        return None
    scopes = frozenset({Scope.NODE})
    return AccessToken(0, row.node, f"node {row.node}", scopes, row.made_at, NO_EXPIRY, None)


def _token(row: AccessTokenRow) -> AccessToken:
    return record(AccessToken, row, user=row.user_name, scopes=scopes_from(row.scopes.split()))
