"""What the site's store lets go of: by the same rules as a node's folders of finished runs.

Any node's worker does it, since the node that brought a run may have been removed.
"""

import logging

from headway.errors import StoreFailed
from headway.node.storing import remove_stored, store_of
from headway.policy.retention import Finished, Removal, seconds, to_remove
from headway.site import Site

log = logging.getLogger(__name__)


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
