"""What lies on this node that belongs to runs and containers, as far as it can be read."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from headway.durable import UNFINISHED
from headway.model.inspection import Lying, Place
from headway.runtime.run_groups import RunGroups
from headway.site import Site

_UNFINISHED = (UNFINISHED, ".gone-")


def lying(site: Site, unknown: list[str]) -> list[Lying]:
    """Folders and control groups of this node; what could not be read goes to *unknown*."""
    home = site.settings.home
    found: list[Lying] = []
    for parent, place in (
        (home / "containers", None),
        (site.settings.secrets_dir, Place.SECRETS),
        (site.settings.work_dir, Place.WORK),
        (site.settings.runs_dir, Place.RUN),
        (site.settings.cache_dir / "sets", Place.DATA_SET),
        (site.settings.cache_dir / "tmp", Place.PARTIAL),
    ):
        try:
            found += _below(parent, place)
        except OSError as error:
            unknown.append(f"what lies in {parent}: {error.strerror}")
    return [*found, *_groups(site)]


def _below(parent: Path, place: Place | None) -> Iterator[Lying]:
    """The folders in *parent*; where they have no *place*, those alone that are unfinished."""
    try:
        entries = sorted(os.scandir(parent), key=lambda each: each.name)
    except FileNotFoundError:
        return
    for each in entries:
        if not each.is_dir(follow_symlinks=False):
            continue
        try:
            changed_at = datetime.fromtimestamp(each.stat(follow_symlinks=False).st_mtime, UTC)
        except FileNotFoundError:  # it was removed just now
            continue
        if each.name.startswith(_UNFINISHED):
            yield Lying(Place.UNFINISHED, f"{parent.name}/{each.name}", changed_at)
        elif place is not None:
            yield Lying(place, each.name, changed_at)
        if place is Place.RUN and Path(each, "checkpoint").is_dir():
            yield Lying(Place.CHECKPOINT, each.name, changed_at)


def _groups(site: Site) -> list[Lying]:
    """Control groups of this site's containers."""
    return [Lying(Place.CGROUP, name, None) for name in sorted(RunGroups(site.site_id).left())]
