"""Commands about runs that serve a port: session, forward."""

import json

import click

from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import as_json, say
from headway.cli.submit import place_options, tell, with_code

_PORT = click.IntRange(1, 65_535)
_KINDS = {
    "jupyter": (
        'JUPYTER_TOKEN="$HEADWAY_SESSION_SECRET" exec jupyter lab --no-browser'
        ' --ip="$HEADWAY_SESSION_HOST" --port="$HEADWAY_SESSION_PORT" --ServerApp.port_retries=0'
        ' --ServerApp.base_url="$HEADWAY_SESSION_PATH" --ServerApp.allow_remote_access=True'
        " --ServerApp.root_dir=."
    ),
}
"""What each kind starts in the image. Jupyter lets in who shows its token: the gateway does."""


@click.command()
@click.argument("kind", metavar="[jupyter|PROGRAM …]", default="jupyter")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", envvar="HEADWAY_IMAGE", help="Container image; or $HEADWAY_IMAGE.")
@click.option(
    "--requirements", default="", help="File of this folder; the session gets what it lists."
)
@click.option("--gpus", type=click.IntRange(0, 1024), default=0, help="GPUs.")
@click.option("--idle", help="Ends unused after so long, such as 30min; the site's by default.")
@click.option("--for", "limit", default="8h", show_default=True, help="Ends after so long anyway.")
@click.option("--name", help="Of the run; what it starts when left out.")
@click.option("--user-folder", is_flag=True, help="With the folders that you keep on the node.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a field of the job file."
)
@place_options
@click.option("-d", "--detach", is_flag=True, help="Do not follow it: print its id.")
@as_json
def session(
    *,
    kind: str,
    arguments: tuple[str, ...],
    image: str | None,
    requirements: str,
    gpus: int,
    idle: str | None,
    limit: str,
    name: str | None,
    user_folder: bool,
    overrides: tuple[str, ...],
    pool: str | None,
    queue: str | None,
    node: str | None,
    detach: bool,
    machine: bool,
) -> None:
    """Start a program that serves a port, in this folder: `headway session --gpus 1 jupyter`.

    A PROGRAM of your own listens on $HEADWAY_SESSION_HOST and $HEADWAY_SESSION_PORT. The link that
    is printed leads you, and nobody else, to its page once it runs. It is ended when nobody has
    used it for a while.
    """
    from headway.model.job_text import read_job

    if image is None:
        raise click.UsageError("give --image, or set HEADWAY_IMAGE: what the session runs in")
    if kind in _KINDS and arguments:
        raise click.UsageError(f"{kind} takes no arguments")
    command = ["sh", "-c", _KINDS[kind]] if kind in _KINDS else [kind, *arguments]
    document = {
        "name": name or (kind if kind in _KINDS else "session"),
        "image": image,
        "command": command,
        "resources": {"gpus": gpus},
        "workdir": ".",
        "requirements": requirements,
        "session": {"idle": idle},
        "user_folder": user_folder,
        "max_runtime": limit,
        "retries": 0,
    }
    read = read_job(json.dumps(document), filename="command line", overrides=overrides)
    with open_client() as client:
        job = with_code(client, read.job.document())
        handed_in = client.submit(job, pool=pool, queue=node or queue)
        tell(client, handed_in, watch=not detach, machine=machine)


@click.command()
@click.argument("run", type=RUN)
@click.argument("port", type=_PORT, required=False)
@click.option(
    "--local-port", type=click.IntRange(0, 65_535), help="Of this machine; PORT by default."
)
def forward(run: str, port: int | None, local_port: int | None) -> None:
    """Lead a port of this machine to one of a run: `headway forward RUN 6006`.

    PORT is one that the job names in `ports`, or the session's own when left out. It goes on until
    Ctrl-C; the port here is open to this machine alone.
    """
    from headway.client.forward import Forward
    from headway.credentials import find_address
    from headway.errors import InvalidInput
    from headway.model.session import session_port
    from headway.settings import read_settings

    with open_client() as client:
        view = client.run(run)
    leased = (view.get("lease") or {}).get("ports", ())
    port = port or session_port(view.get("job", {}), leased)
    if port is None:
        allowed = f"name one of the run's ports, which are {sorted(leased)}; it is {view['state']}"
        raise InvalidInput("port", port, allowed)
    way = Forward(
        find_address(read_settings()),
        view["run_id"],
        port,
        local_port=port if local_port is None else local_port,
        said=lambda line: say(line, err=True),
    )
    say(f"127.0.0.1:{way.local_port} leads to port {port} of {view['name']} until Ctrl-C")
    try:
        way.serve()
    except KeyboardInterrupt:
        way.close()


COMMANDS = (session, forward)
