"""`headway …`: the command line.

Exit status: 0 done, 1 the run failed, 2 bad input, 3 the site, or the node that has what is
asked for, is not reachable from here.
A command's module is imported once that command is asked for: `headway --help` answers at once.
"""

import errno
import gc
import sys
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from headway.clock import SystemClock
from headway.errors import HeadwayError, shown
from headway.home import disk_of, is_short
from headway.views.terminal import plain
from headway.waits import Watch

_SECTIONS = {
    "Run jobs": {
        "run": ("run", "Run a program of this folder on the site."),
        "submit": ("submit", "Submit a job file to the site."),
        "estimate": ("estimate", "Estimate a job's time, memory and cost on each kind of node."),
        "cancel": ("runs", "End a run, or all members of an array."),
        "retry": ("runs", "Try an ended run once more, from its checkpoint."),
        "rerun": ("run", "Submit a run's job again, as a new run with the same code."),
    },
    "Watch": {
        "runs": ("runs", "List runs, newest first."),
        "show": ("runs", "Show everything about a run or an array."),
        "logs": ("runs", "Print what the training program wrote."),
        "why": ("queue", "Say why RUN waits, and what would start it earlier."),
        "queue": ("queue", "Show who waits, for what, and in which order."),
        "nodes": ("queue", "Show each node: what it has, what is granted, what is used."),
        "top": ("top", "Watch nodes, GPUs, runs and the queue; Ctrl-C ends it."),
        "usage": ("usage", "Show what teams and users held in a month, and its cost."),
    },
    "Results and data": {
        "outputs": ("outputs", "List what a run wrote to its outputs, or download it."),
        "tensorboard": ("tensorboard", "Show the event files of runs in TensorBoard."),
        "results": ("arrays", "Compare the members of an array: parameters and last metrics."),
        "data": ("data", "Manage the data sets that your team uploads for its jobs."),
        "profile": ("profile", "Show how a run used its GPUs: kernels, copies, links."),
        "progress": ("progress", "Test what headway reads from a training log."),
    },
    "Work interactively": {
        "session": ("session", "Work interactively on a node: Jupyter, a shell, your program."),
        "exec": ("session", "Run COMMAND, or a shell, in the container of a running run."),
        "forward": ("session", "Forward a local port to one of a run."),
        "ssh": ("ssh", "Use ssh, scp, rsync and editors in a running run."),
    },
    "Connect to a site": {
        "login": ("login", "Log in to the gateway at URL with your token."),
        "completion": ("completion", "Print the completion script for SHELL."),
        "skill": ("skill", "Print a SKILL.md that teaches an assistant to use headway."),
    },
    "Operate a site": {
        "demo": ("demo", "Start a site here, train a sample on it, and show the result."),
        "up": ("site", "Start the site on this machine."),
        "down": ("site", "Stop the site on this machine; running programs go on."),
        "upgrade": ("site", "Bring the running site to the headway that is installed."),
        "install": ("install", "Let systemd run this machine's part of the site, as root."),
        "doctor": ("doctor", "Check what a site needs on this machine."),
        "config": ("config", "Show, check and apply the settings of this machine and its site."),
        "node": ("node", "Add, drain and remove nodes, and join this machine to a site."),
        "user": ("user", "Manage who may use the gateway: make and revoke tokens."),
        "engine": ("engine", "Use another scheduler, such as Slurm: the same jobs run on it."),
        "prune": ("prune", "Remove the folders of finished runs on this node."),
        "backup": ("database", "Write the site's databases to FILE: the ledger and Prefect's."),
        "restore": ("database", "Restore the site's databases from FILE."),
        "audit": ("user", "Show who changed what: tokens, nodes, settings; newest first."),
        "certificate": ("login", "Show the gateway's certificate: fingerprint, names, expiry."),
    },
    "Run one service": {
        "gateway": ("gateway", "Run the site's gateway, as `headway up` does."),
        "serve": ("site", "Run the site's Prefect server in the foreground, for systemd."),
        "database": ("database", "Run the PostgreSQL that headway starts for a site of its own."),
    },
    "Estimators": {
        "estimators": (
            "estimators",
            "Show how well runtimes are predicted; manage the estimators.",
        ),
        "traces": ("estimate", "Import or export measurements of finished runs."),
        "replay": ("replay", "Simulate the jobs of TRACE on a cluster; compare their waits."),
    },
}
"""The commands as `headway --help` shows them: the module of each, and what is said of it."""
_MODULES = {name: module for each in _SECTIONS.values() for name, (module, _) in each.items()}


class _Named(click.Command):
    """A command of the table, as far as it is known before its module is imported."""

    def load(self) -> click.Command:
        """The command itself."""
        gc.disable()  # collections take a seventh of the time, and nearly all of it stays
        module = import_module(f"headway.cli.{_MODULES[self.name or '']}")
        gc.enable()
        known = (each for each in vars(module).values() if isinstance(each, click.Command))
        return _as_typed(next(each for each in known if each.name == self.name))


def _as_typed(command: click.Command) -> click.Command:
    """Have the lines of examples in its help, and in its subcommands', stay lines."""
    command.help = cleandoc(command.help or "").replace("\nExamples:\n", "\n\b\nExamples:\n")
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _as_typed(each)
    return command


class _Headway(click.Group):
    """Turns our errors, and the operating system's, into one line and an exit status."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called, or completed."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, _Named) else found, rest

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what people want to do, what is used first at the top."""
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, about) for name, (_, about) in section.items()])

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
            click.echo("an argument has bytes that are not UTF-8: give it as UTF-8", err=True)
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
    commands=[
        _Named(name, help=about)
        for section in _SECTIONS.values()
        for name, (_, about) in section.items()
    ],
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
