"""The command that is the site's gateway."""

from pathlib import Path

import click

from headway.cli.inputs import this_site
from headway.cli.output import say
from headway.pinning import LOOPBACK

A_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="HEADWAY_GATEWAY_PORT, or 4280, by default."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name by which it is asked; needed beyond loopback, and behind a proxy.",
)
@click.option("--certificate", type=A_PATH, help="Certificate for TLS, with its chain.")
@click.option("--key", type=A_PATH, help="The certificate's private key.")
def gateway(
    host: str, port: int | None, names: tuple[str, ...], certificate: Path | None, key: Path | None
) -> None:
    """Be the site's gateway, as `headway up` starts one on loopback.

    Serve runs, nodes, the queue, estimates and Prometheus metrics to those who have a token.

    `headway user add` makes tokens; this machine's operator finds one in the file token in
    HEADWAY_HOME. Beyond loopback it speaks TLS alone: with the certificate that it is given, else
    with the site's own, which is made for the names on first use (`headway certificate`).
    """
    import uvicorn

    from headway.errors import InvalidInput
    from headway.gateway.app import create_app
    from headway.gateway.certificate import have_certificate
    from headway.gateway.local_token import have_local_token
    from headway.node.daemon import gateway_daemon
    from headway.prefect.auth import site_auth
    from headway.prefect.client import PrefectServer

    if (certificate is None) != (key is None):
        raise InvalidInput("certificate", str(certificate), "give --certificate and --key together")
    if host not in LOOPBACK and not names:
        allowed = "give --name with each name by which it is asked, or bind to loopback"
        raise InvalidInput("host", host, allowed)
    site = this_site()
    if host not in LOOPBACK and certificate is None:
        # Never without TLS: tokens would cross the network unprotected.
        own = have_certificate(site.settings, names, site.clock.now())
        certificate, key = own.path, own.key
        say(f"who logs in compares the fingerprint {own.fingerprint}")
    settings = site.settings
    port = port or settings.gateway_port
    if port == settings.gateway_port:  # another one, beside it, is the operator's own affair
        gateway_daemon(settings).claim()
    have_local_token(site)
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        # Other names are not answered: a page whose name leads here must not pass for ours.
        hosts = (*names, *(LOOPBACK if host in LOOPBACK else ()))
        app = create_app(site, server, allowed_hosts=hosts)
        say(f"the gateway listens on {host}:{port}")
        uvicorn.run(
            app,
            host=host,
            port=port,
            ws="none",
            server_header=False,
            proxy_headers=False,
            access_log=False,
            timeout_graceful_shutdown=3,  # who follows a log would keep it for hours
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )


COMMANDS = (gateway,)
