"""The command exec: a command beside the program of a run."""

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("run", type=RUN)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def execute(ctx: click.Context, run: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the container of a run that runs: `headway exec RUN -- nvidia-smi`.

    A shell without COMMAND. It is the same user there as the run's program, within the same
    limits. It ends with this command, and at the latest with the run; the exit status is its own.
    """
    from headway.client.exec import run_command
    from headway.credentials import find_address
    from headway.model.exec_messages import SHELL
    from headway.settings import read_settings

    with open_client() as client:
        run_id = client.run(run)["run_id"]
    words = command[1:] if command[:1] == ("--",) else command
    ctx.exit(run_command(find_address(read_settings()), run_id, words or SHELL))


COMMANDS = (execute,)
"""For `headway`."""
