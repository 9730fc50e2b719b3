"""`headway …`: the command line.

Exit status: 0 done, 1 the run failed, 2 bad input, 3 the site, or the node that has what is
asked for, is not reachable from here.
A command's module is imported once that command is asked for: `headway --help` answers at once.
"""

import errno
import gc
import sys
from importlib import import_module
from typing import Any

import click

from headway.clock import SystemClock
from headway.errors import HeadwayError, shown
from headway.home import disk_of, is_short
from headway.views.terminal import plain
from headway.waits import Watch

_COMMANDS = {
    "audit": ("user", "Who did what, newest first: tokens, nodes, settings."),
    "backup": ("database", "Write all that the site's databases hold to FILE: ledger and..."),
    "cancel": ("runs", "End a run, or all members of an array; containers get their..."),
    "certificate": ("login", "The gateway's own certificate: its fingerprint, its names,..."),
    "completion": ("completion", "Print the script that lets SHELL complete commands, options,..."),
    "data": ("data", "Data sets that you bring from your machine, for jobs of your..."),
    "database": ("database", "The PostgreSQL that headway itself starts for a site on one..."),
    "demo": ("demo", "Bring up a site, train the flights sample on it, and show..."),
    "doctor": ("doctor", "Check everything a site needs on this machine; exit status 1..."),
    "down": ("site", "Stop the site on this machine, after it has said what runs..."),
    "engine": ("engine", "Schedulers of others, such as Slurm, below this site: the..."),
    "estimate": ("estimate", "Say what a job would take, cost and need on each kind of..."),
    "estimators": ("estimators", "What predicts: how good it is, which versions there are."),
    "exec": ("session", "Run COMMAND in the container of a run that runs: `headway..."),
    "forward": ("session", "Lead a port of this machine to one of a run: `headway forward..."),
    "gateway": ("gateway", "Be the site's gateway, as `headway up` starts one."),
    "login": ("login", "Keep the address, the certificate and your token for the..."),
    "logs": ("runs", "Print what the training program wrote."),
    "node": ("node", "Machines of the site: bring one in, take one out of service."),
    "nodes": ("queue", "What each node has, what is promised of it, and what is in use."),
    "outputs": ("outputs", "List what a run wrote below its outputs, or fetch it into..."),
    "profile": ("profile", "Kernels and copies of a run against what its links carry."),
    "progress": ("progress", "What a log says about progress."),
    "prune": ("prune", "Remove the folders of finished runs on this node: outputs,..."),
    "queue": ("queue", "Who waits, for what, in which order; of other teams only that..."),
    "replay": ("replay", "Replay the jobs of TRACE on a cluster of equal nodes and say..."),
    "rerun": ("run", "Hand in the job of a run once more, as a new run of yours,..."),
    "restore": ("database", "Let the site hold what `headway backup` wrote to FILE; the..."),
    "results": ("arrays", "What the members of an array have found: their parameters..."),
    "retry": ("runs", "Try a run that has ended once more, from its checkpoint,..."),
    "run": ("run", "Run a program of this folder: `headway run train.py --gpus 1..."),
    "runs": ("runs", "List runs, newest first; an array is one line, unless states..."),
    "serve": ("site", "Be the site's Prefect server in the foreground, for systemd..."),
    "session": ("session", "Work in this folder on a node: `headway session --gpus 1..."),
    "show": ("runs", "Everything about one run, or one array, by id, beginning of..."),
    "skill": ("skill", "Print a SKILL.md, by which an assistant uses headway with..."),
    "submit": ("submit", "Hand a job to the site: `headway submit job.yaml --set..."),
    "top": ("top", "Nodes, GPUs, runs and the queue, live; leave with Ctrl-C."),
    "traces": ("estimate", "Measurements of finished runs: bring some in, take them out."),
    "up": ("site", "Bring up the site on this machine: database, server, gateway,..."),
    "usage": ("usage", "What teams and users held in a month: hours, cost, and what..."),
    "user": ("user", "Who may come in at the gateway: hand out tokens, revoke them."),
    "why": ("queue", "Say why RUN waits, who has what it needs, who is ahead, and..."),
}
"""The module of each command, and what `headway --help` says of it."""


class _Named(click.Command):
    """A command of the table, as far as it is known before its module is imported."""

    def load(self) -> click.Command:
        """The command itself."""
        gc.disable()  # collections take a seventh of the time, and nearly all of it stays
        module = import_module(f"headway.cli.{_COMMANDS[self.name or ''][0]}")
        gc.enable()
        known = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in known if each.name == self.name)


class _Headway(click.Group):
    """Turns our errors, and the operating system's, into one line and an exit status."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called, or completed."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, _Named) else found, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes its one line."""
        try:
            return super().invoke(ctx)
        except HeadwayError as error:
            status = error.exit_status
            click.echo(plain(f"{error}{'' if status == 2 else _if_disk_is_full()}"), err=True)
            return ctx.exit(status)
        except BrokenPipeError:
            raise  # whoever read has gone: click ends without a word
        except UnicodeEncodeError:
            click.echo("an argument is no text: it has bytes that are not UTF-8", err=True)
            return ctx.exit(2)
        except OSError as error:
            place = f"{shown(str(error.filename))}: " if error.filename is not None else ""
            full = _if_disk_is_full() if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
            click.echo(plain(f"{place}{error.strerror or error}{full}"), err=True)
            return ctx.exit(3 if isinstance(error, ConnectionError | TimeoutError) else 2)


def _if_disk_is_full() -> str:
    """What to do where that may be why a command failed; nothing where the disk has room."""
    from headway.settings import read_settings

    try:
        home = read_settings().home
        if not is_short(home):
            return ""
        return (
            f". On this machine {disk_of(home)}, so the site in {home} cannot work: "
            "`headway prune --older-than 7d` removes folders of ended runs, then run `headway up`"
        )
    except (HeadwayError, OSError):  # no site is here
        return ""


@click.group(
    cls=_Headway,
    commands=[_Named(name, help=about) for name, (_, about) in _COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="headway", message="%(prog)s %(version)s")
def headway() -> None:
    """Share a team's GPU servers without getting in each other's way."""


def main() -> None:
    """Entry point of the `headway` script."""
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that cannot show a character must not end the command.
        sys.stdout.reconfigure(errors="replace")
    Watch(SystemClock(), lambda line: click.echo(plain(line), err=True)).start()
    headway(prog_name="headway")


if __name__ == "__main__":
    main()
