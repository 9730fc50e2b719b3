"""Commands about runs that people work in: session, forward."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from headway.cli import submit
from headway.cli.completion import RUN
from headway.cli.inputs import open_client, overrides
from headway.cli.output import as_json, say
from headway.cli.submit import Environment, Place
from headway.clock import SystemClock
from headway.errors import GatewayRefused, GatewayUnreachable, InvalidInput
from headway.model.exec_messages import SHELL
from headway.model.session import session_port

if TYPE_CHECKING:
    from headway.client import Client

_PORT = click.IntRange(1, 65_535)
_KINDS = {
    "jupyter": (
        'JUPYTER_TOKEN="$HEADWAY_SESSION_SECRET" exec jupyter lab --no-browser'
        ' --ip="$HEADWAY_SESSION_HOST" --port="$HEADWAY_SESSION_PORT" --ServerApp.port_retries=0'
        ' --ServerApp.base_url="$HEADWAY_SESSION_PATH" --ServerApp.allow_remote_access=True'
        " --ServerApp.root_dir=."
    ),
    "shell": (
        "export -p >/tmp/headway-environment; sh -c 'kill -STOP $$' &"
        ' echo "$!" >/tmp/headway-shell; wait'
    ),
}
"""What each kind starts in the image. Jupyter lets in who shows its token: the gateway does. The
one of a shell waits for that shell's end, which ends the process that it leaves stopped, and
leaves it its environment: a command beside a program has not what was set up for that one. An
image may have `sh` and nothing else of a system, so nothing else is called."""
_SHELL = (
    "until [ -s /tmp/headway-shell ]; do sleep 0.2 2>/dev/null; done; . /tmp/headway-environment;"
    ' "$(command -v bash || command -v sh)"; ended=$?; read -r waits </tmp/headway-shell;'
    ' kill -KILL "$waits"; exit $ended'
)
"""Where the connection to it breaks off, it is killed before it ends the session."""
_POLL_S = 1.0
_STARTING_S = 10.0


@click.command()
@click.argument("kind", metavar="[jupyter|shell|[PORT] -- PROGRAM …]", default="jupyter")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@submit.environment_options
@click.option("--gpus", type=click.IntRange(0, 1024), default=0, help="GPUs.")
@click.option("--idle", help="Ends unused after so long, such as 30min; the site's by default.")
@click.option("--for", "limit", default="8h", show_default=True, help="Ends after so long anyway.")
@click.option("--name", help="Of the run; what it starts when left out.")
@click.option("--user-folder", is_flag=True, help="With the folders that you keep on the node.")
@overrides
@submit.place_options
@click.option("-d", "--detach", is_flag=True, help="Do not follow it: print its id.")
@as_json
def session(
    *,
    kind: str,
    arguments: tuple[str, ...],
    environment: Environment,
    gpus: int,
    idle: str | None,
    limit: str,
    name: str | None,
    user_folder: bool,
    overrides: tuple[str, ...],
    place: Place,
    detach: bool,
    machine: bool,
) -> None:
    """Work interactively on a node: Jupyter, a shell, your program.

    A PROGRAM of your own listens on $HEADWAY_SESSION_HOST and $HEADWAY_SESSION_PORT; one that
    cannot be told where, on PORT and all addresses. The link that is printed leads you, and nobody
    else, to its page once it runs. A session ends when nobody has used it for a while. `shell`
    opens a shell; the session ends with it.

    Examples:
      headway session --gpus 1 jupyter
      headway session --gpus 1 --idle 2h shell
    """
    from headway.model.job_text import read_job

    bare = environment["python"] == submit.NEWEST and not environment["requirements"]
    if kind == "jupyter" and bare:
        raise click.UsageError("give --image or --requirements with Jupyter in it")
    document = {
        **environment,
        **_started(kind, arguments),
        "resources": {"gpus": gpus},
        "workdir": ".",
        "user_folder": user_folder,
        "max_runtime": limit,
    }
    document["session"] |= {"idle": idle}
    document |= {"name": name} if name else {}
    read = read_job(json.dumps(document), filename="command line", overrides=overrides)
    with open_client() as client:
        job = submit.with_code(client, read.job.document())
        made = client.submit(job, **place)
        is_shell = job["session"]["shell"]
        submit.tell(client, made, watch=not (detach or is_shell), machine=machine)
        short = made["run_id"][:8]
        if detach and not (is_shell or machine):
            say(f"`headway forward {short}` leads a port of this machine there")
        if is_shell and not machine:
            ways = f"`headway exec {short}` opens a shell in it, `headway ssh {short}` one by ssh"
            back = f"{ways}, `headway cancel {short}` ends it"
            if detach:
                say(f"once it runs, {back}")
            else:
                sys.exit(_shell_in(client, made["run_id"], back))


def _started(kind: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a job that say what a session of *kind* starts, and where it is served."""
    if kind in _KINDS:
        if arguments:
            raise click.UsageError(f"{kind} takes no arguments")
        started = {"name": kind, "command": ["sh", "-c", _KINDS[kind]]}
        if kind == "shell":  # nobody would be in the shell of another attempt
            return started | {"session": {"shell": True}, "retries": 0}
        return started | {"session": {}}
    if kind.isdecimal():
        if not arguments:
            raise click.UsageError(f"say what listens there: headway session {kind} -- PROGRAM …")
        return {"name": "session", "command": [*arguments], "session": {"port": int(kind)}}
    return {"name": "session", "command": [kind, *arguments], "session": {}}


def _shell_in(client: "Client", run_id: str, back: str) -> int:
    """Wait for the start of a session, and open a shell in it that ends it; its exit status.

    Args:
        client: The gateway.
        run_id: The session.
        back: How to come back to it where this command leaves it alone.
    """
    from headway.client.ways import run_command
    from headway.views.watch import outcome, state_line

    clock, line, refused_s = SystemClock(), "", 0.0
    try:
        while not (view := client.standing(run_id))["over"]:
            if line != (line := state_line(view)):
                say(line, err=True)
            if view["step"] == "train":
                try:
                    return run_command(client.address, run_id, ("sh", "-c", _SHELL))
                except GatewayRefused:  # its container is about to start
                    refused_s += _POLL_S
                    if refused_s > _STARTING_S:
                        raise
            clock.sleep(_POLL_S)
    except (GatewayUnreachable, KeyboardInterrupt) as error:
        say(f"the session goes on until nobody has used it for a while; {back}", err=True)
        if isinstance(error, GatewayUnreachable):
            raise
        return submit.INTERRUPTED
    say(state_line(view), err=True)
    return outcome(view["state"])


@click.command()
@click.argument("run", type=RUN)
@click.argument("port", type=_PORT, required=False)
@click.option(
    "--local-port",
    type=click.IntRange(0, 65_535),
    help="Of this machine; PORT, or a free one, by default.",
)
def forward(run: str, port: int | None, local_port: int | None) -> None:
    """Forward a local port to one of a run.

    PORT is one that the job names in `ports`; without it, the session's own. It lasts until
    Ctrl-C, and only this machine can use the local port.

    Examples:
      headway forward flights 6006
      headway forward flights 6006 --local-port 16006
    """
    from headway.client.ways import Forward

    with open_client() as client:
        view = client.run(run)
    if view["exit"]:
        raise InvalidInput("run", run, f"give one that has not ended: it is {view['state']}")
    leased = (view.get("lease") or {}).get("ports", ())
    port = port or session_port(view.get("job", {}), leased)
    if port is None or (view.get("lease") and port not in leased):
        allowed = f"name one of the run's ports, which are {sorted(leased)}; it is {view['state']}"
        raise InvalidInput("port", port, allowed)
    way = Forward(
        client.address,
        view["run_id"],
        port,
        local_port=local_port,
        said=lambda line: say(line, err=True),
    )
    say(f"127.0.0.1:{way.local_port} leads to port {port} of {view['name']} until Ctrl-C")
    try:
        way.serve()
    except KeyboardInterrupt:
        way.close()


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("run", type=RUN)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def execute(ctx: click.Context, run: str, command: tuple[str, ...]) -> None:
    """Run COMMAND, or a shell, in the container of a running run.

    It runs as the same user as the run's program and within its limits. It ends with this command,
    at the latest with the run. The exit status is COMMAND's.

    Examples:
      headway exec flights -- nvidia-smi
      headway exec flights
    """
    from headway.client.ways import run_command

    with open_client() as client:
        run_id = client.run(run)["run_id"]
    words = command[1:] if command[:1] == ("--",) else command
    ctx.exit(run_command(client.address, run_id, words or SHELL))
