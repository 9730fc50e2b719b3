"""The command that says why a run waits, and what would start it earlier."""

from typing import Any

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import (
    as_json,
    moment_of,
    print_changes,
    print_json,
    print_table,
    promise_of,
    say,
    start_of,
)

_SHOWN = 10
_ANOTHERS = "another team's"


@click.command()
@click.argument("run", type=RUN)
@as_json
def why(run: str, machine: bool) -> None:
    """Say why RUN waits, who has what it needs, who is ahead, and what would start it earlier."""
    with open_client() as client:
        found = client.why(run)
    if machine:
        print_json(found)
        return
    say(f"{found['name']} waits: {found['reason']}")
    if not found["starts_now"]:
        say(f"expected to start: {start_of(found)}{promise_of(found)}")
    _print_holders(found["holders"])
    _print_ahead(found["ahead"])
    if found["changes"]:
        print_changes(found["changes"], "submitted anew with one of these it would start earlier:")
    else:
        click.echo("\nno single change of what it asks would start it notably earlier")


def _print_holders(holders: list[dict[str, Any]]) -> None:
    from headway.units import format_size

    if not holders:
        return
    click.echo("\nwho has it, those that end first at the top:")
    print_table(
        ["run", "team", "node", "gpus", "GPU memory", "host memory", "cpus", "expected end"],
        [
            [
                one["name"] or _ANOTHERS,
                one["team"] or "",
                one["node"],
                str(one["gpus"]),
                format_size(one["gpu_memory_bytes"]) if one["gpus"] else "",
                format_size(one["host_memory_bytes"]),
                f"{one['cpus']:g}",
                moment_of(one["expected_end_at"]),
            ]
            for one in holders[:_SHOWN]
        ],
    )
    _echo_more(len(holders))


def _print_ahead(ahead: list[dict[str, Any]]) -> None:
    if not ahead:
        return
    click.echo("\nwho is ahead, and why:")
    print_table(
        ["#", "run", "team", "is ahead because"],
        [
            [str(one["position"]), one["name"] or _ANOTHERS, one["team"] or "", one["why"]]
            for one in ahead[:_SHOWN]
        ],
    )
    _echo_more(len(ahead))


def _echo_more(count: int) -> None:
    if count > _SHOWN:
        click.echo(f"… and {count - _SHOWN} more; --json has all of them")


COMMANDS = (why,)
"""What the command line has of this file."""
