"""The command that says who waits."""

import click

from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json, print_table, promise_of, start_of


@click.command()
@click.option("--pool", default="", help="Work pool, where the site has several.")
@as_json
def queue(pool: str, machine: bool) -> None:
    """Who waits, for what, in which order; of other teams only that somebody does."""
    with open_client() as client:
        views = client.queue(pool)
    if machine:
        print_json(views)
        return
    from headway.views.queue_table import waiting_name

    if not views:
        click.echo("nobody waits")
    else:
        print_table(
            ["#", "run", "name", "owner", "team", "expected start", "waits because it"],
            [
                [
                    str(v["position"]),
                    (v["run_id"] or "")[:8],
                    waiting_name(v),
                    v["owner"] or ("unknown" if v["run_id"] else ""),
                    v["team"] or "",
                    start_of(v) + promise_of(v),
                    v["reason"] or "",
                ]
                for v in views[:_SHOWN]
            ],
        )
        if len(views) > _SHOWN:
            click.echo(f"… and {len(views) - _SHOWN} more; `headway queue --json` has all of them")


_SHOWN = 100


COMMANDS = (queue,)
