"""Letting go of what members have put: of what no name has any more, and of what is long unused."""

import logging
from datetime import timedelta

from headway.model.upload import Upload
from headway.node.sweep import trying
from headway.site import Site

log = logging.getLogger(__name__)


def tidy_uploads(site: Site) -> None:
    """Remove chunks of this machine that no data set of their team has: uploads that broke off."""
    for team in site.upload_chunks.teams():
        with trying(f"data of team {team}"):
            unasked = site.upload_chunks.unasked(team, site.clock.now())
            left = unasked - site.ledger.uploads.chunks_named(team) if unasked else set()
            if site.upload_chunks.remove(team, left):
                log.info("data of team %s: %d parts of no data set were removed", team, len(left))


def unused_uploads(site: Site, keep_s: float) -> list[Upload]:
    """Data sets of all teams that no run was handed in with for *keep_s*, and none needs."""
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
