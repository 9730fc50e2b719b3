"""Commands about who may come in at the gateway, and who did what: user, audit."""

from datetime import datetime
from typing import Any

import click

from headway.cli.inputs import DURATION, this_site
from headway.cli.output import Columns, Json, as_json, print_json, print_rows, say, told_by
from headway.model.access import AccessToken, AuditEntry, Scope

_SCOPES = ("watch", "submit", "operate")
_TOKENS: Columns = {
    "number": "token_id",
    "user": "user",
    "team": "team",
    "scopes": lambda token: ", ".join(token["scopes"]),
    "state": "state",
    "expires": lambda token: token["expires_at"][:10],
}
_ACTS: Columns = {
    "at": lambda act: act["at"][:19],
    "who": "actor",
    "did": "act",
    "to": "subject",
    "details": lambda act: ", ".join(f"{name} {it}" for name, it in act["details"].items()),
}


@click.group()
def user() -> None:
    """Manage who may use the gateway: make and revoke tokens."""


@user.command()
@click.argument("name")
@click.option(
    "--team", help="Whose share of the site the runs use; not needed where there is one at most."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    default=("watch", "submit"),
    show_default=True,
    help="What the token may be used for; may be given several times.",
)
@click.option("--expires", type=DURATION, default="90d", show_default=True, help="From now.")
@as_json
def add(
    name: str, team: str | None, scopes: tuple[str, ...], expires: float, machine: bool
) -> None:
    """Make a token for NAME; it is shown once.

    A token with the scope operate sees, and may change, the runs of every team.

    Examples:
      headway user add ada --team vision
      headway user add monitor --scope watch --expires 365d
    """
    from headway.credentials import noted_gateway
    from headway.gateway import tokens
    from headway.gateway.certificate import announced, login_line
    from headway.this_node import os_user

    site = this_site()
    token, kept = tokens.issue(
        site.ledger, user=name, team=tokens.only_team(site) if team is None else team,
        scopes={Scope(each) for each in scopes},
        lifetime_s=expires, actor=os_user(),
    )  # fmt: skip
    if machine:
        print_json({**token_view(kept, site.ledger.now()), "token": token})
        return
    say(token)
    way = "give it by a safe way: it is kept nowhere, and is not shown again"
    say(f"the token of {kept.user}, team {kept.team}; {way}", err=True)
    if place := announced(site.ledger) or noted_gateway(site.settings):
        say(login_line(place, site.settings.gateway_names), err=True)


@user.command("list")
@told_by(lambda views: print_rows(_TOKENS, views))
def list_() -> list[Json]:
    """List tokens and what they allow, never the tokens themselves.

    Examples:
      headway user list
      headway user list --json
    """
    ledger = this_site().ledger
    now = ledger.now()
    return [token_view(token, now) for token in ledger.access_tokens.all()]


def _tell_revoked(done: Json) -> None:
    numbers = done["revoked"]
    say(f"{done['user']}: revoked {len(numbers)} token(s), number {', '.join(map(str, numbers))}")


@user.command()
@click.argument("name")
@click.option("--team", help="Only NAME of this team; must be said where several teams have one.")
@click.option("--number", type=click.IntRange(1, 2**63 - 1), help="Only this one of NAME's tokens.")
@told_by(_tell_revoked)
def revoke(name: str, team: str | None, number: int | None) -> Json:
    """Revoke NAME's tokens, from the next request on.

    Examples:
      headway user revoke ada
      headway user revoke ada --team vision --number 2
    """
    from headway.gateway import tokens
    from headway.this_node import os_user

    ledger = this_site().ledger
    revoked = tokens.revoke(ledger, name, team=team, actor=os_user(), token_id=number)
    return {"user": name, "revoked": [each.token_id for each in revoked]}


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--actor", default="", help="Only what this user did.")
@click.option("--subject", default="", help="Only what was done to this user, node, run or block.")
@told_by(lambda views: print_rows(_ACTS, views))
def audit(limit: int, actor: str, subject: str) -> list[Json]:
    """Show who changed what: tokens, nodes, settings; newest first.

    Examples:
      headway audit
      headway audit --actor ada --limit 200
    """
    entries = this_site().ledger.audit_log.newest(limit, actor=actor, subject=subject)
    return [audit_view(entry) for entry in entries]


def token_view(token: AccessToken, now: datetime) -> dict[str, Any]:
    """One token, as `headway user list --json` prints it: never the token itself."""
    from headway.views.fields import fields

    state = "valid" if token.is_valid(now) else "revoked" if token.revoked_at else "expired"
    return {
        **fields(token, "token_id", "user", "team"),
        "scopes": sorted(scope.value for scope in token.scopes),
        "state": state,
        **fields(token, "made_at", "expires_at", "revoked_at"),
    }


def audit_view(entry: AuditEntry) -> dict[str, Any]:
    """One act, as `headway audit --json` prints it."""
    from headway.views.fields import fields

    return fields(entry, "at", "actor", "act", "subject", "details")
