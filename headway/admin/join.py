"""Bringing this machine into a site that runs elsewhere, and out of it."""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NoReturn

from headway.admin.environment import check_connection, site_environment
from headway.admin.processes import start_guard, worker_command
from headway.admin.register import make_pool, register, write_profile
from headway.admin.up import become
from headway.clock import SystemClock
from headway.credentials import note_gateway, noted_gateway
from headway.durable import replace_file
from headway.errors import InvalidInput, LedgerError, SiteRefused, SiteUnreachable
from headway.gateway.certificate import announced
from headway.gateway.tokens import have_local_token
from headway.home import settle
from headway.ledger import Ledger
from headway.model.access import token_digest
from headway.model.document import HIDDEN
from headway.prefect import auth
from headway.prefect.auth import auth_for, keep_secret, site_auth
from headway.prefect.client import PrefectServer
from headway.prefect.transport import checked_address
from headway.settings import Settings
from headway.site import Site
from headway.this_node import check_name, os_user


def join(
    settings: Settings,
    *,
    server_url: str,
    ledger_url: str,
    say: Callable[[str], None],
    ask: Callable[[], str] | None = None,
) -> None:
    """Note where the site's server and ledger are, and make this node's work pool there.

    Args:
        settings: This node's.
        server_url: The Prefect API.
        ledger_url: The ledger's database, by the login that `add_node` has made for this node.
        say: Is told what happens.
        ask: Asks a person for the auth string; None where nobody is there.

    Raises:
        InvalidInput: *server_url* is no address, others could read what goes to it or to the
            ledger, or that is the login of another node.
        SiteUnreachable: No Prefect server answers there.
        SiteRefused: It asks for an auth string that was not given.
        LedgerUnreachable: No database answers at *ledger_url*.
        NodeNameTaken: Another node of the site has this name.
    """
    server_url = checked_address("server", server_url)
    check_connection(settings, "server", server_url)
    check_connection(settings, "ledger", ledger_url)
    settle(settings.home)
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = _accepted_auth(settings, server_url, ask)
    with PrefectServer(server_url, auth=secret, timeout_s=10.0) as server:
        registered = server.has_deployment()
        ledger = Ledger.open(ledger_url)
        try:
            _check_login(settings, ledger)
            check_name(ledger, settings)
            learn_gateway(settings, ledger, say)
        finally:
            ledger.close()
        replace_file(settings.server_pointer, server_url)
        keep_secret(settings.ledger_pointer, ledger_url)
        if secret:
            keep_secret(settings.auth_file, secret)
        say(f"joining {server_url.removesuffix('/api')} as node {settings.node} …")
        env = site_environment(settings)
        if not registered:
            register(settings, say)
            return
        if not server.has_pool(settings.pool):  # to make one takes 3 s of a core
            make_pool(settings, env)
        server.offer_in(settings.pool)


def add_node(settings: Settings, ledger: Ledger, name: str) -> str:
    """Make a login of the ledger's database for node *name*; its address, to be joined with.

    Raises:
        InvalidInput: No other machine reaches the site's database.
        LedgerRefused: The ledger's own role may make no others.
    """
    if settings.owns_database:
        allowed = "the site's own PostgreSQL listens on no port: name another one by that first"
        raise InvalidInput("HEADWAY_LEDGER_URL", HIDDEN, allowed)
    return ledger.node_logins.add(name, actor=os_user())


def _check_login(settings: Settings, ledger: Ledger) -> None:
    own = ledger.node_logins.own()
    if own not in (None, settings.node):
        allowed = f"the ledger's address is the login of {own}: set HEADWAY_NODE={own}"
        raise InvalidInput("HEADWAY_NODE", settings.node, allowed)


def learn_gateway(settings: Settings, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Let commands about runs find the site's gateway from here, by a token of this machine's own.

    Whoever may read the ledger's address could make one anyway.
    """
    place = announced(ledger)
    if place is not None:
        have_local_token(settings, ledger)
        note_gateway(settings, place)
    elif noted_gateway(settings) is None:
        say(
            "the site's gateway stays on its own machine, so commands about runs work there "
            "alone: set HEADWAY_GATEWAY_HOST there, then join once more"
        )


def _accepted_auth(
    settings: Settings, server_url: str, ask: Callable[[], str] | None
) -> str | None:
    """An auth string for the server: of the environment, of this home, or asked for."""
    given = os.environ.get(auth.CLIENT) or os.environ.get(auth.SERVER)
    secret = given or auth_for(settings, server_url)
    with PrefectServer(server_url, auth=secret, timeout_s=10.0) as server:
        if not server.is_healthy():
            raise SiteUnreachable(server_url, "no Prefect server answers there")
        try:
            server.has_deployment()
        except SiteRefused:
            if ask is None:
                raise
            return ask()
    return secret


def serve(site: Site, say: Callable[[str], None]) -> NoReturn:
    """Join, start the guard unless it runs, then become this node's worker.

    On the site's own machine, where the home is the server's, too, there is nothing to join.

    For systemd and containers. The guard outlives the worker.

    Raises:
        SiteUnreachable: The server does not answer; whoever supervises tries again.
        LedgerUnreachable: The database does not.
    """
    settings = site.settings
    if settings.has_joined:
        join(settings, server_url=settings.api_url, ledger_url=settings.database_url, say=say)
    else:
        _register_own(site, say)
    start_guard(settings, SystemClock(), say)
    become(worker_command(settings), settings)


def _register_own(site: Site, say: Callable[[str], None]) -> None:
    settings = site.settings
    site.make_ledger()
    check_name(site.ledger, settings)
    with PrefectServer(settings.api_url, auth=site_auth(settings), timeout_s=10.0) as server:
        if not server.is_healthy():
            raise SiteUnreachable(settings.api_url, "no Prefect server answers there")
    if register(settings, say):
        write_profile(settings, say)


def leave(settings: Settings) -> None:
    """Forget the server and ledger that this node joined."""
    if settings.server_pointer.exists():
        _revoke_token(settings)
        for own in (settings.auth_file, settings.token_file, settings.gateway_note):
            own.unlink(missing_ok=True)
    settings.server_pointer.unlink(missing_ok=True)
    settings.ledger_pointer.unlink(missing_ok=True)


def _revoke_token(settings: Settings) -> None:
    """Let nobody in any more by the token that this machine got when it joined."""
    if not settings.token_file.exists():
        return
    with suppress(LedgerError), closing(Ledger.find(settings.database_url)) as ledger:
        known = ledger.access_tokens.valid(token_digest(settings.token_file.read_text().strip()))
        if known is not None:
            ledger.access_tokens.revoke(known.user, actor=os_user(), token_id=known.token_id)
