"""`headway …`: the command line.

Exit status: 0 done, 1 the run failed, 2 bad input, 3 the site, or the node that has what is
asked for, is not reachable from here.
Imports stay inside the commands, so that `headway --help` answers at once.
"""

import errno
import sys
from typing import Any

import click

from headway.cli import (
    arrays,
    completion,
    data,
    database,
    doctor,
    engine,
    estimate,
    estimators,
    execute,
    gateway,
    login,
    node,
    outputs,
    profile,
    progress,
    queue,
    replay,
    run,
    run_control,
    runs,
    session,
    site,
    skill,
    submit,
    top,
    usage,
    user,
    why,
)
from headway.clock import SystemClock
from headway.views.terminal import plain
from headway.waits import Watch


class _Headway(click.Group):
    """Turns our errors, and the operating system's, into one line and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes its one line."""
        from headway.errors import (
            EndUntold,
            GatewayRefused,
            HeadwayError,
            InvalidInput,
            LedgerMissing,
            LedgerUnreachable,
            NoCredentials,
            RunUnknown,
            SiteUnreachable,
            shown,
        )

        try:
            return super().invoke(ctx)
        except HeadwayError as error:
            status = 1
            if isinstance(error, GatewayRefused):
                status = error.exit_status
            elif isinstance(error, InvalidInput | RunUnknown | EndUntold):
                status = 2
            elif isinstance(
                error, SiteUnreachable | NoCredentials | LedgerUnreachable | LedgerMissing
            ):
                status = 3
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
    from headway.errors import HeadwayError
    from headway.home import disk_of, is_short
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


@click.group(cls=_Headway, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headway", message="%(prog)s %(version)s")
def headway() -> None:
    """Share a team's GPU servers without getting in each other's way."""


for module in (
    submit, run, runs, run_control, queue, site, doctor, node, database, estimate, estimators,
    progress, replay, gateway, login, top, usage, profile, user, outputs, why, completion, arrays,
    skill, data, session, execute, engine,
):  # fmt: skip
    for command in module.COMMANDS:
        headway.add_command(command)


def main() -> None:
    """Entry point of the `headway` script."""
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that cannot show a character must not end the command.
        sys.stdout.reconfigure(errors="replace")
    Watch(SystemClock(), lambda line: click.echo(plain(line), err=True)).start()
    headway(prog_name="headway")


if __name__ == "__main__":
    main()
