"""Commands that say who waits, and why, and what the nodes have: queue, why, nodes."""

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import (
    Columns,
    Json,
    moment_of,
    planned_of,
    print_changes,
    print_rows,
    say,
    start_of,
    told_by,
)
from headway.units import format_size
from headway.views.tables import cache_text, gpus_text, state_text, waiting_name

_SHOWN = 100
_COLUMNS: Columns = {
    "#": "position",
    "run": lambda line: (line["run_id"] or "")[:8],
    "name": waiting_name,
    "owner": lambda line: line["owner"] or ("unknown" if line["run_id"] else ""),
    "team": "team",
    "expected start": start_of,
    "waits because it": "reason",
}


def _tell(lines: list[Json]) -> None:
    if lines:
        print_rows(_COLUMNS, lines, _SHOWN)
        if planned := planned_of(lines):
            click.echo(f"\nstarts are told {planned}")
    else:
        click.echo("no run waits")


@click.command()
@click.option("--pool", default="", help="Work pool, where the site has several.")
@told_by(_tell)
def queue(pool: str) -> list[Json]:
    """Show who waits, for what, and in which order.

    Of other teams it only says that somebody waits.

    Examples:
      headway queue
      headway queue --pool a100
    """
    with open_client() as client:
        return client.queue(pool)


_SHOWN_OF_WHY = 10


def _tell_why(found: Json) -> None:
    say(f"{found['name']} waits: {found['reason']}")
    if not found["starts_now"]:
        planned = planned_of([found])
        say(f"expected to start: {start_of(found)}{planned and f', {planned}'}")
    if found["holders"]:
        click.echo("\nwho has it, those that end first at the top:")
        print_rows(_HOLDERS, found["holders"], _SHOWN_OF_WHY)
    if found["ahead"]:
        click.echo("\nwho is ahead, and why:")
        print_rows(_AHEAD, found["ahead"], _SHOWN_OF_WHY)
    if found["changes"]:
        print_changes(found["changes"], "submitted anew with one of these it would start earlier:")
    else:
        click.echo("\nno single change of what it asks would start it notably earlier")


@click.command()
@click.argument("run", type=RUN)
@told_by(_tell_why)
def why(run: str) -> Json:
    """Say why RUN waits, and what would start it earlier.

    It names who holds what RUN needs, and who is ahead of it.

    Examples:
      headway why flights
      headway why 3f2a --json
    """
    with open_client() as client:
        return client.why(run)


def _name(one: Json) -> str:
    return str(one["name"] or "another team's")


_HOLDERS: Columns = {
    "run": _name,
    "team": "team",
    "node": "node",
    "gpus": "gpus",
    "GPU memory": lambda one: format_size(one["gpu_memory_bytes"]) if one["gpus"] else "",
    "host memory": lambda one: format_size(one["host_memory_bytes"]),
    "cpus": lambda one: f"{one['cpus']:g}",
    "expected end": lambda one: moment_of(one["expected_end_at"]),
}
_AHEAD: Columns = {"#": "position", "run": _name, "team": "team", "is ahead because": "why"}


def _memory(view: Json) -> str:
    promised, size = view["host_promised_bytes"], view["host_memory_bytes"]
    return f"{format_size(promised)} of {format_size(size)}"


def _used(view: Json) -> str:
    used = view["host_used_bytes"]
    return "–" if used is None else format_size(used)


_NODES: Columns = {
    "node": "node",
    "pool": "pool",
    "state": state_text,
    "CPUs promised": lambda view: f"{view['cpus_promised']:g} of {view['cpus']:g}",
    "memory promised": _memory,
    "memory used": _used,
    "data cache": lambda view: cache_text(view["cache"]),
    "GPUs": lambda view: view["gpu_error"] or gpus_text(view["gpus"]) or "none",
}


@click.command()
@told_by(lambda views: print_rows(_NODES, views))
def nodes() -> list[Json]:
    """Show each node: what it has, what is granted, what is used.

    Examples:
      headway nodes
      headway nodes --json
    """
    with open_client() as client:
        return client.nodes()
