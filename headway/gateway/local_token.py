"""The token of a site's own machine: made and found without a login.

Whoever may read the home of the site is an operator of it anyway.
"""

from datetime import timedelta

from headway.gateway.submit import os_user
from headway.gateway.tokens import issue
from headway.model.access import Scope, looks_like_token, token_digest
from headway.prefect.auth import keep_secret
from headway.site import Site
from headway.units import DAY_S

_TEAM = "default"
_LIFETIME_S = 365 * DAY_S
_RENEWED_BEFORE_S = 30 * DAY_S


def have_local_token(site: Site) -> str:
    """The operator's token in the home of *site*, made anew where there is none that lasts."""
    path = site.settings.token_file
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    if looks_like_token(token):
        known = site.ledger.access_tokens.valid(token_digest(token))
        lasting = site.ledger.now() + timedelta(seconds=_RENEWED_BEFORE_S)
        if known is not None and known.is_valid(lasting):
            return token
    user = os_user()
    token, _ = issue(
        site.ledger, user=user, team=_TEAM, scopes=set(Scope), lifetime_s=_LIFETIME_S, actor=user
    )
    keep_secret(path, token)
    return token
