"""Folders of finished runs on this node: what they take, and letting go of the oldest.

A checkpoint goes earlier than the folder that it lies in: it is large, and only a retry needs it.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from uuid import UUID

from headway import trees
from headway.errors import RunUnknown
from headway.ledger.records import RunRecord
from headway.model.run import RunState
from headway.node.sweep import trying
from headway.policy.retention import Finished, Removal, seconds, to_remove
from headway.run.here import CHECKPOINT_FOLDER
from headway.runtime.diskuse import used_bytes
from headway.site import Site

log = logging.getLogger(__name__)

_PAGE = 500
_GONE = ".gone-"

Walk = Callable[[list[RunRecord]], Iterable[RunRecord]]
"""Goes through what is to be measured, and may show how far it is."""


def removals(
    site: Site,
    *,
    keep_s: float | None,
    keep_bytes: int | None,
    part: str = "",
    walk: Walk = iter,
) -> list[Removal]:
    """What `remove` would be told to remove now. See `policy.retention.to_remove`.

    Runs that the ledger does not know stay: they may be another ledger's.
    """
    folders = site.settings.runs_dir
    teams = site.policy_settings.teams.items()
    keep_s_of = {team: seconds(each.keep_days) for team, each in teams}
    busy = busy_here(site)
    records = (each for each in _records(site) if (folders / each.run_id / part).is_dir())
    ended = _only_stored(site, [each for each in records if is_over(each, busy)])
    found = [
        Finished(
            record.run_id,
            record.name,
            record.ended_at,
            used_bytes(folders / record.run_id / part),
            keep_s=None if part else keep_s_of.get(record.team),
        )
        for record in walk(ended)
        if record.ended_at is not None
    ]
    return to_remove(found, site.ledger.now(), keep_s=keep_s, keep_bytes=keep_bytes)


def remove(site: Site, run_id: str, part: str = "") -> bool:
    """Remove the folder of a finished run; False when somebody is at work on it after all.

    With *part* only the folder of this name in it.

    No link is followed. A removal that was killed is completed by the next one.

    Raises:
        OSError: Something in it cannot be removed.
    """
    try:
        record = site.ledger.runs.get(run_id)
    except RunUnknown:
        return False
    if not is_over(record, busy_here(site)) or not _only_stored(site, [record]):
        return False
    folder = site.settings.runs_dir / record.run_id / part
    gone = site.settings.runs_dir / f"{_GONE}{secrets.token_hex(8)}"
    if folder.is_symlink() or not folder.is_dir():
        return False
    folder.rename(gone)
    complete_removals(site)
    return True


def complete_removals(site: Site) -> None:
    """Remove what removals that were killed have left, and what one has just begun."""
    for left in site.settings.runs_dir.glob(f"{_GONE}*"):
        try:
            trees.remove(left)
        except OSError as error:  # the others go all the same
            log.warning("%s was not removed: %s", left, error)


def tidy(site: Site) -> int:
    """Remove what the operator's settings of this node let go of; how many."""
    settings, done = site.node_settings, 0
    checkpoint_s = seconds(settings.keep_checkpoint_days)
    with trying("checkpoints of ended runs"):
        done += _tidy(site, keep_s=checkpoint_s, keep_bytes=None, part=CHECKPOINT_FOLDER)
    with trying("folders of ended runs"):
        keep_s = seconds(settings.keep_days)
        done += _tidy(site, keep_s=keep_s, keep_bytes=settings.keep_size)
    return done


def _only_stored(site: Site, records: list[RunRecord]) -> list[RunRecord]:
    """Those of *records* of which the copy here is not the only one, where the site has a store."""
    if site.settings.store_url is None:
        return records
    found: list[RunRecord] = []
    for start in range(0, len(records), _PAGE):
        page = records[start : start + _PAGE]
        unstored = site.ledger.stored.unstored(site.settings.node, [each.run_id for each in page])
        found += [each for each in page if each.run_id not in unstored]
    return found


def _tidy(site: Site, *, keep_s: float | None, keep_bytes: int | None, part: str = "") -> int:
    teams = site.policy_settings.teams.values()
    by_team = not part and any(each.keep_days is not None for each in teams)
    if keep_s is None and keep_bytes is None and not by_team:
        return 0
    done = 0
    for removal in removals(site, keep_s=keep_s, keep_bytes=keep_bytes, part=part):
        what = " of ".join(filter(None, (part, f"run {removal.run.run_id}")))
        try:
            done += remove(site, removal.run.run_id, part)
        except OSError as error:
            log.warning("%s was not removed: %s", what, error)
        else:
            log.info("%s was removed: %s", what, removal.why)
    return done


def _records(site: Site) -> Iterator[RunRecord]:
    """Runs of the ledger that have a folder here."""
    names = [name for name in _folders(site.settings.runs_dir) if is_run_id(name)]
    for start in range(0, len(names), _PAGE):
        yield from site.ledger.runs.of(names[start : start + _PAGE]).values()


def _folders(where: Path) -> list[str]:
    try:
        with os.scandir(where) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def is_run_id(name: str) -> bool:
    """Whether a folder of this name may be a run's."""
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def busy_here(site: Site) -> set[str]:
    """Runs that have a container or a lease here."""
    held = {lease.run_id for lease in site.ledger.leases.live(site.settings.node)}
    return held | {container.run_id for container in site.runtime.containers()}


def is_over(record: RunRecord, busy: set[str]) -> bool:
    """Whether the run has ended and nobody is at work on what it left; *busy* as `busy_here`.

    A flow process that is left then only waits until Prefect hears of the end.
    """
    return record.state is RunState.ENDED and record.run_id not in busy
