"""Commands about who may come in at the gateway, and who did what: user, audit."""

from typing import Any

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json, print_table, say

_SCOPES = ("watch", "submit", "operate")


class Duration(click.ParamType[float]):
    """A length of time, such as 90d; in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds that *value* means."""
        from headway.units import parse_duration

        try:
            return parse_duration(value)
        except (ValueError, OverflowError) as error:
            return self.fail(str(error), param, ctx)


@click.group()
def user() -> None:
    """Who may come in at the gateway: hand out tokens, revoke them."""


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
@click.option("--expires", type=Duration(), default="90d", show_default=True, help="From now.")
@as_json
def add(
    name: str, team: str | None, scopes: tuple[str, ...], expires: float, machine: bool
) -> None:
    """Make a token for NAME, which is shown this once.

    With the scope operate it sees every team's runs, and may change them.
    """
    from headway.gateway.certificate import site_certificate
    from headway.gateway.tokens import issue, only_team
    from headway.model.access import Scope
    from headway.this_node import os_user
    from headway.views.access_document import token_view

    site = this_site()
    token, kept = issue(
        site.ledger, user=name, team=only_team(site) if team is None else team,
        scopes={Scope(each) for each in scopes},
        lifetime_s=expires, actor=os_user(),
    )  # fmt: skip
    if machine:
        print_json({**token_view(kept, site.ledger.now()), "token": token})
        return
    say(token)
    way = "give it by a safe way: it is kept nowhere, and is not shown again"
    say(f"the token of {kept.user}, team {kept.team}; {way}", err=True)
    if (own := site_certificate(site.settings)) is not None:
        say(f"headway login https://… --fingerprint {own.fingerprint}", err=True)


@user.command("list")
@as_json
def list_(machine: bool) -> None:
    """Tokens and what they may be used for; never the tokens themselves."""
    from headway.views.access_document import token_view

    ledger = this_site().ledger
    now = ledger.now()
    views = [token_view(token, now) for token in ledger.access_tokens.all()]
    if machine:
        print_json(views)
        return
    columns = ["number", "user", "team", "scopes", "state", "expires"]
    print_table(
        columns,
        [
            [
                str(view["token_id"]),
                view["user"],
                view["team"],
                ", ".join(view["scopes"]),
                view["state"],
                view["expires_at"][:10],
            ]
            for view in views
        ],
    )


@user.command()
@click.argument("name")
@click.option("--team", help="Only NAME of this team; must be said where several teams have one.")
@click.option("--number", type=click.IntRange(1, 2**63 - 1), help="Only this one of NAME's tokens.")
@as_json
def revoke(name: str, team: str | None, number: int | None, machine: bool) -> None:
    """Let NAME in no more: from the next request on, each of its tokens is refused."""
    from headway.gateway.tokens import revoke as revoke_tokens
    from headway.this_node import os_user

    ledger = this_site().ledger
    revoked = revoke_tokens(ledger, name, team=team, actor=os_user(), token_id=number)
    numbers = [each.token_id for each in revoked]
    if machine:
        print_json({"user": name, "revoked": numbers})
    else:
        say(f"{name}: revoked {len(numbers)} token(s), number {', '.join(map(str, numbers))}")


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--actor", default="", help="Only what this user did.")
@click.option("--subject", default="", help="Only what was done to this user, node, run or block.")
@as_json
def audit(limit: int, actor: str, subject: str, machine: bool) -> None:
    """Who did what, newest first: tokens, nodes, settings."""
    from headway.views.access_document import audit_view

    entries = this_site().ledger.audit_log.newest(limit, actor=actor, subject=subject)
    views = [audit_view(entry) for entry in entries]
    if machine:
        print_json(views)
        return
    print_table(["at", "who", "did", "to", "details"], [_audit_row(view) for view in views])


def _audit_row(view: dict[str, Any]) -> list[str]:
    details = ", ".join(f"{name} {value}" for name, value in view["details"].items())
    return [view["at"][:19], view["actor"], view["act"], view["subject"], details]


COMMANDS = (user, audit)
