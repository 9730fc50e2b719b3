"""Letting go of the environments on this node that its teams do not use any more."""

import logging

from headway.node.sweep import trying
from headway.run.environment_pruning import prune_environments
from headway.site import Site

log = logging.getLogger(__name__)


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
