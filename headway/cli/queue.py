"""The command that says who waits."""

import click

from headway.cli.inputs import this_site
from headway.cli.output import as_json, print_json, print_table, promise_of, start_of


@click.command()
@as_json
def queue(machine: bool) -> None:
    """Who waits, for what, in which order."""
    from headway.views.queue_document import line_views

    views = line_views(this_site())
    if machine:
        print_json(views)
    elif not views:
        click.echo("nobody waits")
    else:
        print_table(
            ["#", "run", "name", "owner", "team", "expected start", "waits because it"],
            [
                [
                    str(v["position"]),
                    v["run_id"][:8],
                    v["name"],
                    v["owner"] or "unknown",
                    v["team"],
                    start_of(v),
                    v["reason"] + promise_of(v),
                ]
                for v in views[:_SHOWN]
            ],
        )
        if len(views) > _SHOWN:
            click.echo(f"… and {len(views) - _SHOWN} more; `headway queue --json` has all of them")


_SHOWN = 100


COMMANDS = (queue,)
