"""The command `ssh`."""

import os
import sys
from shlex import quote

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import say
from headway.errors import InvalidInput

_SUFFIX = ".headway"
_OPTIONS = {
    # Both ends are on this machine; the gateway's certificate tells who is behind them.
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "LogLevel": "ERROR",
}


@click.command("ssh", context_settings={"allow_interspersed_args": False})
@click.argument("run", type=RUN, required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--proxy", is_flag=True, help="Be what ssh speaks to, as its ProxyCommand.")
def ssh(run: str | None, arguments: tuple[str, ...], *, proxy: bool) -> None:
    """Use ssh, scp, rsync and editors in a running run.

    Without RUN it prints what ssh needs to find each run as the host RUN.headway. Keep that in
    a file, and write `Include headway` as the first line of ~/.ssh/config: what stands there
    earlier goes before. With RUN it starts ssh, which has to be on this machine.

    Examples:
      headway ssh > ~/.ssh/headway
      headway ssh flights nvidia-smi
    """
    itself = f"{quote(sys.executable)} -P -m headway.cli.main ssh --proxy".replace("%", "%%")
    if run is None:
        options = {"ProxyCommand": f"{itself} '%n'", **_OPTIONS}
        say(f"Host *{_SUFFIX}")
        for name, value in options.items():
            say(f"    {name} {value}")
        return
    with open_client() as client:
        run_id = client.run(run.removesuffix(_SUFFIX))["run_id"]
    if proxy:
        from headway.bridges import ssh_server

        ssh_server.serve(client.address, run_id)
        return
    options = {"ProxyCommand": f"{itself} {run_id}", **_OPTIONS}
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    try:
        os.execvp("ssh", ["ssh", *given, f"{run_id}{_SUFFIX}", *arguments])  # noqa: S606 - a list
    except FileNotFoundError:
        raise InvalidInput("ssh", "ssh", "install OpenSSH's client on this machine") from None
