"""Commands about the site's databases: backup, restore, database serve."""

from pathlib import Path

import click

from headway.admin.database import backup as backups
from headway.admin.database.own import become_database
from headway.cli.inputs import OUTPUT, this_site
from headway.cli.output import say


@click.group()
def database() -> None:
    """The PostgreSQL that headway itself starts for a site on one machine."""


@database.command()
def serve() -> None:
    """Be the site's own PostgreSQL in the foreground, for systemd; made where there is none."""
    site = this_site()
    become_database(site.settings, site.clock, say)


@click.command()
@click.argument("file", type=OUTPUT)
def backup(file: Path) -> None:
    """Write all that the site's databases hold to FILE: ledger and Prefect's own."""
    site = this_site()
    backups.back_up(site.settings, site.clock, file)
    say(f"written: {file}; keep it safe, it holds the site's Secret blocks and their key")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Let what the site holds now go.")
def restore(file: Path, *, replace: bool) -> None:
    """Let the site hold what `headway backup` wrote to FILE; the site must be down."""
    site = this_site()
    backups.restore(site.settings, site.clock, file, replace=replace, say=say)
    say("restored; `headway up` starts the site")
