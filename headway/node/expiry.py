"""What the site removes because nobody has used it for as long as it may stay.

Code and data that members have sent, environments on this node, and runs in the site's store: the
last by the same rules as a node's folders of finished runs, on any node, since the node that
brought a run may have been removed.
"""

import logging
from datetime import timedelta

from headway.code.unpack import trim
from headway.errors import StoreFailed
from headway.model.upload import Upload
from headway.node.storing import remove_stored, store_of
from headway.node.sweep import trying
from headway.policy.code_retention import to_let_go
from headway.policy.retention import Finished, Removal, seconds, to_remove
from headway.run.environment_pruning import prune_environments
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
        log.info("code of team %s: %d folders and %d parts were removed", team, done, parts)
    return done + parts


def tidy_code(site: Site) -> None:
    """The same for every team."""
    for team in site.ledger.code.teams():
        with trying(f"code of team {team}"):
            prune_code(site, team)


def trim_code(site: Site) -> None:
    """Remove from this node the parts of code that lie here for longest, where it is too much."""
    trim(site.settings.code_dir)


def tidy_uploads(site: Site) -> None:
    """Remove chunks of this machine that no data set of their team has: uploads that broke off."""
    for team in site.upload_chunks.teams():
        with trying(f"data of team {team}"):
            unasked = site.upload_chunks.unasked(team, site.clock.now())
            left = unasked - site.ledger.uploads.chunks_named(team) if unasked else set()
            if site.upload_chunks.remove(team, left):
                log.info("data of team %s: %d parts of no data set were removed", team, len(left))


def unused_uploads(site: Site, keep_s: float) -> list[Upload]:
    """Data sets of all teams that no run was submitted with for *keep_s*, and none needs."""
    before = site.ledger.now() - timedelta(seconds=keep_s)
    return [
        each
        for each in site.ledger.uploads.all()
        if each.used_at < before and not site.ledger.uploads.needed_by(each.team, each.name)
    ]


def remove_upload(site: Site, upload: Upload) -> bool:
    """Remove a data set with what of it no other one of its team has; False while it is needed."""
    left = site.ledger.uploads.remove(upload.team, upload.name)
    if left is None:
        return False
    site.upload_chunks.remove(upload.team, left)
    return True


def tidy_environments(site: Site) -> int:
    """Remove what was unused for as long as a team keeps things, or is too much; how many."""
    top, removed = site.settings.environments_dir, 0
    if not top.is_dir():
        return 0
    for team in [each.name for each in top.iterdir() if not each.name.startswith(".")]:
        with trying(f"environments of team {team}"):
            removed += prune_environments(site, team)
    if removed:
        log.info("%d environments that nobody used were removed", removed)
    return removed


def stored_removals(site: Site, *, keep_s: float | None, keep_bytes: int | None) -> list[Removal]:
    """The runs that the store would let go of now. See `policy.retention.to_remove`."""
    teams = site.policy_settings.teams.items()
    keep_s_of = {team: seconds(each.keep_days) for team, each in teams}
    found = [
        Finished(
            each.run_id,
            each.name,
            each.ended_at,
            each.size_bytes,
            keep_s=keep_s_of.get(each.team),
        )
        for each in site.ledger.stored.kept()
    ]
    return to_remove(found, site.ledger.now(), keep_s=keep_s, keep_bytes=keep_bytes)


def tidy_store(site: Site) -> int:
    """Remove from the store what the teams' `keep_days` let go of; how many runs."""
    store = store_of(site.settings)
    limited = any(each.keep_days is not None for each in site.policy_settings.teams.values())
    if store is None or not limited:
        return 0
    done = 0
    for removal in stored_removals(site, keep_s=None, keep_bytes=None):
        try:
            remove_stored(site, store, removal.run.run_id)
        except StoreFailed as error:
            log.warning("run %s was not removed: %s", removal.run.run_id, error)
            break  # what comes after it would fail, too; in an hour all of it is tried again
        log.info("run %s was removed from the store: %s", removal.run.run_id, removal.why)
        done += 1
    return done
