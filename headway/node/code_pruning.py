"""Letting go of code that nobody uses any more: at the site, and in this node's cache."""

import logging

from headway.code.unpack import trim
from headway.node.sweep import trying
from headway.policy.code_retention import to_let_go
from headway.policy.retention import seconds
from headway.site import Site

log = logging.getLogger(__name__)


def prune_code(site: Site, team: str) -> int:
    """Let go of what *team* has not used for as long as it may stay; how many folders.

    Code of a run that has not ended stays, whatever its age.
    """
    store = site.ledger.code
    keep_s = seconds(site.policy_settings.team(team).keep_days)
    held_bytes = store.held_bytes(team)
    codes = to_let_go(store.kept(team), site.ledger.now(), keep_s=keep_s, held_bytes=held_bytes)
    done = sum(store.let_go(code) for code in codes)
    parts = store.drop_chunks(team) + store.forget(team)
    if done or parts:
        log.info("code of team %s: %d folders and %d parts were let go of", team, done, parts)
    return done + parts


def tidy_code(site: Site) -> None:
    """The same for every team, and for what of it lies on this node."""
    for team in site.ledger.code.teams():
        with trying(f"code of team {team}"):
            prune_code(site, team)
    with trying("code on this node"):
        trim(site.settings.code_dir)
