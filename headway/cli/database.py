"""Commands about the site's own database: database serve."""

import click

from headway.cli.inputs import this_site
from headway.cli.output import say


@click.group()
def database() -> None:
    """The PostgreSQL that headway itself starts for a site on one machine."""


@database.command()
def serve() -> None:
    """Be the site's own PostgreSQL in the foreground, for systemd; made where there is none."""
    from headway.admin.database.own import become_database

    site = this_site()
    become_database(site.settings, site.clock, say)


COMMANDS = (database,)
