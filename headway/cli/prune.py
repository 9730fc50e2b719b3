"""The command that removes what ended runs have left, and data that nobody uses."""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from headway.cli.inputs import DURATION, SIZE, this_site
from headway.cli.output import Columns, as_json, print_json, print_rows, say, silent
from headway.errors import InvalidInput
from headway.home import ballast_given_up
from headway.units import format_size

if TYPE_CHECKING:
    from headway.ledger.records import RunRecord
    from headway.policy.retention import Removal
    from headway.site import Site

_Limits = tuple[float | None, int | None]
"""Seconds and bytes to keep; None for no limit."""


@click.command()
@click.option("--older-than", "keep_s", type=DURATION, help="Ended longer ago than this: 90d.")
@click.option("--keep-at-most", "keep_bytes", type=SIZE, help="Oldest first, until that is left.")
@click.option("--store", "stored", is_flag=True, help="In the site's store, not on this node.")
@click.option("--data", is_flag=True, help="Data sets that members have put, here at the gateway.")
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def prune(
    *,
    keep_s: float | None,
    keep_bytes: int | None,
    stored: bool,
    data: bool,
    dry_run: bool,
    yes: bool,
    machine: bool,
) -> None:
    """Remove the folders of finished runs on this node.

    Outputs, logs and profiles go. Without limits it follows the node's block (keep_days,
    keep_size). With --store: what the site's store has of finished runs of all nodes, without
    limits by the teams' keep_days. With --data: uploaded data sets that no run has used for that
    long. What runs, waits or will be retried is never touched.

    Examples:
      headway prune --older-than 30d --dry-run
      headway prune --keep-at-most 500GiB --yes
    """
    from headway.admin.database.own import start_database

    site = this_site()
    if machine and not (yes or dry_run):
        raise click.UsageError("with --json nobody can be asked: add --yes or --dry-run")
    tell = silent if machine else say
    with ballast_given_up(site.settings.home, tell) as short:
        if short:  # it has stopped the database, which says what may go
            start_database(site.settings, site.clock, tell)
        if data:
            _prune_data(site, keep_s, ask=not yes, dry_run=dry_run, machine=machine)
            return
        limits = _limits(site, (keep_s, keep_bytes), stored=stored)
        _prune_runs(site, limits, stored=stored, ask=not yes, dry_run=dry_run, machine=machine)


def _prune_runs(
    site: "Site", limits: _Limits, *, stored: bool, ask: bool, dry_run: bool, machine: bool
) -> None:
    """Remove folders of finished runs on this node, or in the store."""
    from headway.views.fields import fields

    found, remove = (_in_the_store if stored else _on_this_node)(site, limits)
    freed = sum(each.run.size_bytes for each in found)
    if not machine and found:
        print_rows(_RUNS, found)
    if not machine:
        some = f"{len(found)} finished runs, {format_size(freed)}"
        click.echo(some if found else "nothing to remove")
    gone = []
    if found and not dry_run and (not ask or click.confirm("Remove them?")):
        with click.progressbar(found, label="removing", file=sys.stderr) as bar:
            gone = [each.run.run_id for each in bar if remove(each.run.run_id)]
    if machine:
        runs = [
            {
                **fields(each.run, "run_id", "name", "ended_at", "size_bytes"),
                "why": each.why,
                "removed": each.run.run_id in gone,
            }
            for each in found
        ]
        print_json({"runs": runs, "size_bytes": freed})
    elif found and not dry_run:
        click.echo(f"{len(gone)} of {len(found)} removed")


def _prune_data(
    site: "Site", keep_s: float | None, *, ask: bool, dry_run: bool, machine: bool
) -> None:
    """Remove data sets that members have put and that no run has used for *keep_s*."""
    from headway.node.expiry import remove_upload, unused_uploads
    from headway.views.fields import fields

    if keep_s is None:
        raise InvalidInput("--older-than", None, "give a duration such as 90d")
    found = unused_uploads(site, keep_s)
    if not machine:
        print_rows(_DATA, found)
    gone = []
    if found and not dry_run and (not ask or click.confirm("Remove them?")):
        gone = [each for each in found if remove_upload(site, each)]
    if machine:
        shown = ("team", "name", "owner", "size_bytes", "used_at")
        sets = [{**fields(each, *shown), "removed": each in gone} for each in found]
        print_json({"data": sets, "size_bytes": sum(each.size_bytes for each in found)})
    elif found and not dry_run:
        click.echo(f"{len(gone)} of {len(found)} removed")


def _on_this_node(site: "Site", limits: _Limits) -> "tuple[list[Removal], Callable[[str], bool]]":
    from headway.node import prune as here

    keep_s, keep_bytes = limits
    found = here.removals(site, keep_s=keep_s, keep_bytes=keep_bytes, walk=_seen_on_the_way)
    return found, lambda run_id: here.remove(site, run_id)


def _in_the_store(site: "Site", limits: _Limits) -> "tuple[list[Removal], Callable[[str], bool]]":
    from headway.node.expiry import stored_removals
    from headway.node.storing import remove_stored, store_of

    store = store_of(site.settings)
    if store is None:
        raise InvalidInput("--store", "no store", "set HEADWAY_STORE_URL; this site has none")

    def remove(run_id: str) -> bool:
        remove_stored(site, store, run_id)
        return True

    keep_s, keep_bytes = limits
    return stored_removals(site, keep_s=keep_s, keep_bytes=keep_bytes), remove


def _limits(site: "Site", asked: _Limits, *, stored: bool) -> _Limits:
    """As asked, else as set for this node, or for the teams."""
    from headway.policy.retention import seconds

    if asked != (None, None):
        return asked
    if stored:
        if all(each.keep_days is None for each in site.policy_settings.teams.values()):
            allowed = "give --older-than 90d or --keep-at-most 5TiB, or set a team's keep_days"
            raise InvalidInput("headway-line/site", "no limits", f"{allowed} in the block")
        return asked
    settings = site.node_settings
    if settings.keep_days is None and settings.keep_size is None:
        allowed = "give --older-than 90d or --keep-at-most 500GiB, or set keep_days or keep_size"
        name = f"headway-node/{site.settings.node}"
        raise InvalidInput(name, "no limits", f"{allowed} in the block")
    return seconds(settings.keep_days), settings.keep_size


def _seen_on_the_way(records: "list[RunRecord]") -> "Iterator[RunRecord]":
    with click.progressbar(records, label="measuring", file=sys.stderr) as bar:
        yield from bar


_RUNS: Columns = {
    "run": lambda each: each.run.run_id[:8],
    "name": lambda each: each.run.name,
    "ended": lambda each: f"{each.run.ended_at.astimezone():%Y-%m-%d %H:%M}",
    "size": lambda each: format_size(each.run.size_bytes),
    "why": lambda each: each.why,
}
_DATA: Columns = {
    "team": lambda each: each.team,
    "data set": lambda each: each.name,
    "size": lambda each: format_size(each.size_bytes),
    "last used": lambda each: f"{each.used_at:%Y-%m-%d}",
}
