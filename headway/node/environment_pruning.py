"""Letting go of environments on this node that no run has started in for long."""

import fcntl
import logging
import os
from pathlib import Path

from headway.node.sweep import trying
from headway.policy.code_retention import KEEP_S
from headway.policy.retention import seconds
from headway.run.environment import CACHE_FOLDER, LOCK
from headway.site import Site
from headway.trees import remove

log = logging.getLogger(__name__)
_GONE = ".gone-"


def tidy_environments(site: Site) -> int:
    """Remove what was unused for as long as a team keeps things; how many environments."""
    top, removed = site.settings.environments_dir, 0
    if not top.is_dir():
        return 0
    now_s = site.clock.now().timestamp()
    for team in (each for each in top.iterdir() if not each.name.startswith(".")):
        keep_s = seconds(site.policy_settings.team(team.name).keep_days)
        keep_s = KEEP_S if keep_s is None else keep_s
        with trying(f"environments of team {team.name}"):
            kept = [each for each in team.iterdir() if each.name != CACHE_FOLDER]
            gone = [each for each in kept if _goes(each, now_s - keep_s)]
            if gone and len(gone) == len(kept):
                remove(team / CACHE_FOLDER)
            removed += len(gone)
    if removed:
        log.info("%d environments that nobody had used for long were removed", removed)
    return removed


def _goes(folder: Path, before_s: float) -> bool:
    """Remove *folder* unless a run has started in it after *before_s*, or one is in it now."""
    if folder.name.startswith(_GONE):  # a removal that broke off
        remove(folder)
        return True
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_mtime >= before_s:
            return False
        away = folder.with_name(f"{_GONE}{folder.name}")
        folder.rename(away)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    remove(away)
    return True
