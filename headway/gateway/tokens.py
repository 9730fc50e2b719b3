"""Access tokens for the gateway, as an operator hands them out."""

import secrets
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from headway.errors import InvalidInput, shown
from headway.ledger import Ledger
from headway.model import access
from headway.model.access import AccessToken, Scope
from headway.prefect.auth import keep_secret
from headway.settings import Settings
from headway.site import Site
from headway.this_node import OPERATORS_TEAM, os_user
from headway.units import DAY_S, format_duration


def new_token() -> str:
    """Random bits that nobody guesses."""
    return access.TOKEN_PREFIX + secrets.token_urlsafe(access.TOKEN_BYTES)


def issue(
    ledger: Ledger,
    *,
    user: str,
    team: str,
    scopes: Collection[Scope],
    lifetime_s: float,
    actor: str,
) -> tuple[str, AccessToken]:
    """Make a token for *user* of *team*; *actor* is who makes it.

    Returns:
        The token itself, which is kept nowhere and cannot be shown again, and what is kept.

    Raises:
        InvalidInput: Nobody may be called so, or it would last for too long.
    """
    if not 0 < lifetime_s <= access.MAX_LIFETIME_S:
        most = format_duration(access.MAX_LIFETIME_S)
        raise InvalidInput(
            "expires", format_duration(lifetime_s), f"give more than 0, up to {most}"
        )
    token = new_token()
    kept = ledger.access_tokens.add(
        access.token_digest(token),
        user=access.checked_name("user", user),
        team=access.checked_name("team", team),
        scopes=scopes,
        lifetime_s=lifetime_s,
        actor=actor,
    )
    return token, kept


def only_team(site: Site) -> str:
    """The one team that the site's settings or tokens name; the operators' where they name none.

    Raises:
        InvalidInput: They name several.
    """
    named = {each.team for each in site.ledger.access_tokens.all() if each.revoked_at is None}
    teams = sorted((named | set(site.policy_settings.teams)) - {OPERATORS_TEAM})
    if len(teams) > 1:
        raise InvalidInput("team", "", f"give --team with one of {', '.join(teams)}, or a new one")
    return teams[0] if teams else OPERATORS_TEAM


def revoke(
    ledger: Ledger,
    user: str,
    *,
    actor: str,
    team: str | None = None,
    token_id: int | None = None,
) -> list[AccessToken]:
    """Let nobody in any more by *user*'s tokens, or by the one with *token_id*.

    Raises:
        InvalidInput: There was nothing to revoke, so that a mistyped name is no revocation; or
            several teams have a *user*, and neither *team* nor *token_id* says which is meant.
    """
    mine = [each for each in ledger.access_tokens.all() if each.user == user]
    teams = sorted({each.team for each in mine if each.revoked_at is None})
    if team is None and token_id is None and len(teams) > 1:
        allowed = f"{shown(user)} is in the teams {', '.join(teams)}; say which with --team"
        raise InvalidInput("team", "", allowed)
    revoked = ledger.access_tokens.revoke(user, team=team, actor=actor, token_id=token_id)
    if not revoked:
        which = "" if token_id is None else f" with the number {token_id}"
        which += "" if team is None else f" of team {shown(team)}"
        allowed = f"no token{which} of {shown(user)} is left to revoke; see `headway user list`"
        raise InvalidInput("user", user, allowed)
    return revoked


_LIFETIME_S = 365 * DAY_S
_RENEWED_BEFORE_S = 30 * DAY_S


def have_local_token(settings: Settings, ledger: Ledger) -> str:
    """The token in this machine's home, made anew where there is none that lasts.

    The operator's; on a node that has a login of its own one that serves its runs alone.
    """
    path = settings.token_file
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    digest = access.token_digest(token) if access.looks_like_token(token) else ""
    if (node := ledger.node_logins.own()) is not None:
        return _of_node(path, ledger, node, token, digest)
    if digest:
        known = ledger.access_tokens.valid(digest)
        lasting = ledger.now() + timedelta(seconds=_RENEWED_BEFORE_S)
        if known is not None and known.is_valid(lasting):
            return token
    user = os_user()
    token, _ = issue(
        ledger,
        user=user,
        team=OPERATORS_TEAM,
        scopes={Scope.WATCH, Scope.SUBMIT, Scope.OPERATE},
        lifetime_s=_LIFETIME_S,
        actor=user,
    )
    keep_secret(path, token)
    return token


def _of_node(path: Path, ledger: Ledger, node: str, token: str, digest: str) -> str:
    if not digest or ledger.access_tokens.of_node(digest) is None:
        token = new_token()
        ledger.access_tokens.keep_of_node(node, access.token_digest(token))
        keep_secret(path, token)
    return token
