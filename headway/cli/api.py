"""The command that serves the site over HTTP."""

import click

from headway.cli.inputs import this_site

LOOPBACK = ("127.0.0.1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option("--port", default=4280, show_default=True, type=click.IntRange(1, 65_535))
def api(host: str, port: int) -> None:
    """Serve runs, nodes, the queue, estimates and Prometheus metrics over HTTP.

    There are no accounts: bind to another address than loopback only behind
    something that knows who asks.
    """
    import uvicorn

    from headway.gateway.api import create_app

    # On loopback only loopback's names are answered, against DNS rebinding.
    hosts = LOOPBACK if host in LOOPBACK else ("*",)
    uvicorn.run(create_app(this_site(), allowed_hosts=hosts), host=host, port=port)


COMMANDS = (api,)
