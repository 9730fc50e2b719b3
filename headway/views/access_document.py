"""Tokens and the audit table as plain data with documented keys (docs/json.md)."""

from datetime import datetime
from typing import Any

from headway.model.access import AccessToken, AuditEntry
from headway.views.fields import fields, iso_time


def token_view(token: AccessToken, now: datetime) -> dict[str, Any]:
    """One token, as `headway user list --json` prints it: never the token itself."""
    state = "valid" if token.is_valid(now) else "revoked" if token.revoked_at else "expired"
    return {
        "token_id": token.token_id,
        "user": token.user,
        "team": token.team,
        "scopes": sorted(scope.value for scope in token.scopes),
        "state": state,
        "made_at": iso_time(token.made_at),
        "expires_at": iso_time(token.expires_at),
        "revoked_at": iso_time(token.revoked_at),
    }


def audit_view(entry: AuditEntry) -> dict[str, Any]:
    """One act, as `headway audit --json` prints it."""
    return fields(entry, "at", "actor", "act", "subject", "details")
