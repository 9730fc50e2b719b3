"""Letting go of environments on this node: of those unused for long, and of what is too much."""

import os
from collections.abc import Collection
from pathlib import Path

from headway.policy.code_retention import KEEP_S
from headway.policy.retention import seconds
from headway.run.environment import GIVEN_TO, LOCK, MAKING, SEALED, USED, lock_of, read_seal
from headway.runtime.diskuse import used_bytes
from headway.site import Site
from headway.trees import remove
from headway.units import GIB

TEAM_BYTES = 64 * GIB
"""What the environments of a team take at most on a node, beside those that are in use."""
_GONE, _OLD_CACHE = ".gone-", "cache"
_STARTS_WITHIN_S = 600.0
"""Whoever has taken an environment, or begun one, has a container after so long, or never."""


def prune_environments(site: Site, team: str, most_bytes: int = TEAM_BYTES) -> int:
    """Remove those of *team* that were unused for as long as it keeps things; how many.

    Those that stay take *most_bytes* at most, beside those in use: the longest unused go first.
    """
    containers = {each.name for each in site.runtime.containers()}
    keep_s = seconds(site.policy_settings.team(team).keep_days)
    now_s = site.clock.now().timestamp()
    before_s = now_s - (KEEP_S if keep_s is None else keep_s)
    kept, removed = [], 0
    for each in (site.settings.environments_dir / team).iterdir():
        if each.name == _OLD_CACHE:  # earlier versions shared one
            remove(each)
        elif each.name.startswith(_GONE):  # a removal that broke off
            remove(each)
            removed += 1
        else:
            size = read_seal(each).get("size_bytes")
            kept.append((each.stat().st_mtime, used_bytes(each) if size is None else size, each))
    total = sum(size for _, size, _ in kept)
    for used_s, size, each in sorted(kept):
        goes = total > most_bytes or used_s < before_s
        if _tidied(each, containers, now_s, used_s, goes=goes):
            removed += 1
            total -= size
    return removed


def _holds(note: Path, containers: Collection[str], now_s: float) -> bool:
    """Whether the container that *note* is about is there, or may yet come."""
    name = note.name.removeprefix(USED).removeprefix(MAKING).removeprefix(GIVEN_TO)
    return name in containers or note.lstat().st_mtime > now_s - _STARTS_WITHIN_S


def _tidied(
    folder: Path, containers: Collection[str], now_s: float, used_s: float, *, goes: bool
) -> bool:
    """Remove what *folder* has of containers that are gone, or all of it; whether it is gone."""
    lock = lock_of(folder)
    if lock is None:
        return False  # it is being made
    try:
        sealed = read_seal(folder).get("made")
        notes = [each for each in folder.iterdir() if each.name not in (LOCK, SEALED, sealed)]
        old = [each for each in notes if not _holds(each, containers, now_s)]
        for each in old:
            # What a container made that is gone may be what others have that are not.
            if len(old) == len(notes) or each.name.startswith(USED):
                remove(each)
        if not goes or len(old) < len(notes):
            os.utime(folder, (used_s, used_s))  # nobody has used it now
            return False
        away = folder.with_name(f"{_GONE}{folder.name}")
        folder.rename(away)
    finally:
        os.close(lock)
    remove(away)
    return True
