"""The command that is the site's gateway."""

import gc
import socket
import sys
from pathlib import Path

import click
import uvicorn

from headway.cli.inputs import this_site
from headway.cli.output import say
from headway.errors import InvalidInput
from headway.pinning import EVERYWHERE, LOOPBACK, reached_by_itself

A_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--host", help="Address to bind to; HEADWAY_GATEWAY_HOST, or 127.0.0.1, by default.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="HEADWAY_GATEWAY_PORT, or 4280, by default."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name by which it is asked; HEADWAY_GATEWAY_NAMES by default.",
)
@click.option("--certificate", type=A_PATH, help="Certificate for TLS, with its chain.")
@click.option("--key", type=A_PATH, help="The certificate's private key.")
def gateway(
    host: str | None,
    port: int | None,
    names: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Run the site's gateway, as `headway up` does.

    It serves runs, nodes, the queue, estimates and Prometheus metrics to whoever has a token.
    `headway user add` makes tokens; the operator of this machine finds one in the file `token` in
    HEADWAY_HOME. Beyond loopback it speaks only TLS: with the certificate given here, else with
    the site's own, which is made on first use (`headway certificate`).

    Examples:
      headway gateway
      headway gateway --host 0.0.0.0 --name gpu.example.org
    """
    from headway.gateway.app import create_app
    from headway.gateway.certificate import announce, have_certificate
    from headway.gateway.sessions import by_port, sessions_app
    from headway.gateway.tokens import have_local_token
    from headway.node.apart import fork_helper
    from headway.node.daemon import gateway_daemon
    from headway.node.protocols import bounds, listening
    from headway.prefect.auth import site_auth
    from headway.prefect.client import PrefectServer

    if (certificate is None) != (key is None):
        raise InvalidInput("certificate", str(certificate), "give --certificate and --key together")
    site = this_site()
    settings = site.settings
    host, names = host or settings.gateway_host, names or settings.gateway_names
    if host == EVERYWHERE and not names:
        allowed = "give --name, or HEADWAY_GATEWAY_NAMES, with each name by which it is asked"
        raise InvalidInput("host", host, allowed)
    # Other names are not answered: a page whose name leads here must not pass for ours.
    hosts = (*names, *(LOOPBACK if host in LOOPBACK else (reached_by_itself(host),)))
    own, sites = None, (settings.address,) if settings.address else ()
    if host not in LOOPBACK and certificate is None:
        # Never without TLS: tokens would cross the network unprotected.
        own = have_certificate(settings, hosts, site.clock.now())
        say(f"who logs in compares the fingerprint {own.fingerprint}")
    port = port or settings.gateway_port
    have_local_token(settings, site.ledger)
    if port == settings.gateway_port:  # another one, beside it, is the operator's own affair
        gateway_daemon(settings).claim()
        name = next((each for each in hosts if each not in LOOPBACK), hosts[0])
        announce(site, host=host, port=port, name=name, own=own, given=certificate)
    fork_helper()
    try:
        opened = listening(host, port)
    except OSError as error:
        allowed = f"it cannot be listened on ({error.strerror}): give another one"
        raise InvalidInput("--port", f"{host}:{port}", allowed) from None
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        answered = (*hosts, *sites)
        sessions = _sessions_socket(host, settings.sessions_port)
        shown_at = None if sessions is None else settings.sessions_port
        app = create_app(site, server, allowed_hosts=answered, sessions_port=shown_at)
        say(f"the gateway listens on {host}:{port}")
        sockets = [opened, *([] if sessions is None else [sessions])]
        config = uvicorn.Config(
            by_port(settings.sessions_port, sessions_app(site, allowed_hosts=answered), app),
            **bounds(),
            server_header=False,
            proxy_headers=False,
            access_log=False,
            timeout_graceful_shutdown=3,  # who follows a log would keep it for hours
            ssl_certfile=own.path if own else certificate,
            ssl_keyfile=own.key if own else key,
        )
        # Between a thread that is at work and the event loop; 5 ms at each turn add up.
        sys.setswitchinterval(0.0005)
        # What was made until here stays: to look through it again and again takes 50 ms each time.
        gc.collect()
        gc.freeze()
        uvicorn.Server(config).run(sockets=sockets)


def _sessions_socket(host: str, port: int) -> socket.socket | None:
    """Where the pages of sessions are served; None where the port is taken: all else goes on."""
    from headway.node.protocols import listening

    try:
        return listening(host, port)
    except OSError as error:
        say(f"no pages of sessions: {host}:{port} cannot be listened on ({error.strerror})")
        say("set HEADWAY_SESSIONS_PORT to a free port")
        return None
