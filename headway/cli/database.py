"""Commands about the site's databases: backup, restore, database serve."""

from pathlib import Path

import click

from headway.cli.inputs import OUTPUT, this_site
from headway.cli.output import say


@click.group()
def database() -> None:
    """Run the PostgreSQL that headway starts for a site of its own."""


@database.command()
def serve() -> None:
    """Run the site's own PostgreSQL in the foreground, for systemd.

    It is created where there is none.

    Examples:
      headway database serve
      HEADWAY_HOME=/srv/headway headway database serve
    """
    from headway.admin.database.own import become_database

    site = this_site()
    become_database(site.settings, site.clock, say)


@click.command()
@click.argument("file", type=OUTPUT)
def backup(file: Path) -> None:
    """Write the site's databases to FILE: the ledger and Prefect's.

    Examples:
      headway backup site.backup
      headway backup /mnt/backups/monday.backup
    """
    from headway.admin.database import backup as backups

    site = this_site()
    backups.back_up(site.settings, site.clock, file)
    say(f"written: {file}; keep it safe, it holds the site's Secret blocks and their key")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Let what the site holds now go.")
def restore(file: Path, *, replace: bool) -> None:
    """Restore the site's databases from FILE.

    FILE was written by `headway backup`. The site must be down.

    Examples:
      headway restore site.backup
      headway restore site.backup --replace
    """
    from headway.admin.database import backup as backups

    site = this_site()
    backups.restore(site.settings, site.clock, file, replace=replace, say=say)
    say("restored; `headway up` starts the site")
