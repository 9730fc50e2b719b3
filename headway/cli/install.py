"""The command that lets systemd keep the site."""

import os

import click

from headway.admin import install as installing
from headway.cli.inputs import this_site
from headway.cli.output import say


@click.command()
@click.option("--no-start", is_flag=True, help="Write the units only; do not enable or start them.")
@click.option("--remove", is_flag=True, help="Stop the services and remove the units.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def install(*, no_start: bool, remove: bool, dry_run: bool) -> None:
    """Let systemd run this machine's part of the site, as root.

    That is the site, or on a machine that has joined one its guard and worker. The settings,
    HEADWAY_*, of this command's environment are added to /etc/headway/site.env, which only root
    reads. Repeat it after a change; what did not change goes on.

    Examples:
      headway install --dry-run
      HEADWAY_GATEWAY_HOST=0.0.0.0 HEADWAY_GATEWAY_NAMES=gpus.example.org headway install
    """
    if remove:
        installing.remove(say, dry=dry_run)
        return
    if installing.ENVIRONMENT.exists():
        kept = installing.read_environment(installing.ENVIRONMENT.read_text())
        for name, value in kept.items():
            os.environ.setdefault(name, value)
    settings = this_site().settings
    installing.install(settings, os.environ, say, start=not no_start, dry=dry_run)
    if not (dry_run or no_start):
        say("it starts; `headway doctor` says what is up, `journalctl -u 'headway-*'` why not")
