"""The command that says what teams and users held of the site."""

import click

from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json, print_table, say


@click.command()
@click.option("--team", default=None, help="Only this team; a member sees its own.")
@click.option("--user", default=None, help="Only this user.")
@click.option("--month", default=None, metavar="YYYY-MM", help="The present one if not set.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@as_json
def usage(*, as_csv: bool, machine: bool, **asked: str | None) -> None:
    """Show what teams and users held in a month, and its cost.

    Hours, cost, and how much of it was not used.

    Examples:
      headway usage
      headway usage --month 2026-01 --csv
    """
    from headway.views.tables import HEADINGS, usage_cells, usage_csv

    with open_client() as client:
        found = client.usage(**asked)
    rows = found["rows"]
    if machine:
        print_json(found)
    elif as_csv:
        click.echo(usage_csv(rows), nl=False)
    elif not rows:
        say(f"nothing was held from {found['since'][:10]} on")
    else:
        print_table(list(HEADINGS), [usage_cells(row) for row in (*rows, found["total"])])
