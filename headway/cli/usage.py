"""The command that says what teams and users held of the site."""

from pathlib import Path

import click

from headway.cli.inputs import OUTPUT, open_client
from headway.cli.output import as_json, print_json, print_table, say
from headway.views.tables import HEADINGS, usage_cells, usage_csv


@click.command()
@click.option("--team", default=None, help="Only this team; a member sees its own.")
@click.option("--user", default=None, help="Only this user.")
@click.option("--month", default=None, metavar="YYYY-MM", help="The present one if not set.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--picture", type=OUTPUT, help="Write a PNG of the hours of each team into this file."
)
@as_json
def usage(*, as_csv: bool, picture: Path | None, machine: bool, **asked: str | None) -> None:
    """What teams and users held in a month: hours, cost, and what of it was not used."""
    with open_client() as client:
        found = client.usage(**asked)
    rows = found["rows"]
    if picture is not None:
        from headway.views.charts import draw_usage

        picture.write_bytes(draw_usage(rows))
    if machine:
        print_json(found)
    elif as_csv:
        click.echo(usage_csv(rows), nl=False)
    elif not rows:
        say(f"nothing was held from {found['since'][:10]} on")
    else:
        print_table(list(HEADINGS), [usage_cells(row) for row in (*rows, found["total"])])
