"""The token of a machine of the site: made and found without a login.

Whoever may read the home of a site is an operator of it anyway.
"""

from datetime import timedelta
from pathlib import Path

from headway.gateway.tokens import issue, new_token
from headway.ledger import Ledger
from headway.model.access import Scope, looks_like_token, token_digest
from headway.prefect.auth import keep_secret
from headway.settings import Settings
from headway.this_node import OPERATORS_TEAM, os_user
from headway.units import DAY_S

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
    digest = token_digest(token) if looks_like_token(token) else ""
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
        ledger.access_tokens.keep_of_node(node, token_digest(token))
        keep_secret(path, token)
    return token
