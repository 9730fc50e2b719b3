"""The environment of everything that belongs to a site."""

import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import tzlocal
from pydantic import SecretStr
from sqlalchemy import make_url

from headway.errors import InvalidInput
from headway.policy.exposure import is_exposed
from headway.prefect import auth
from headway.prefect.auth import site_auth
from headway.project import PROJECT, VERSION_CHECK
from headway.settings import Settings

_SHARED = {
    "PREFECT_MESSAGING_BROKER": "prefect_redis.messaging",
    "PREFECT_MESSAGING_CACHE": "prefect_redis.messaging",
    "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
    "PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_QUEUE_STORAGE": "prefect_redis.cleanup_queue",
}
"""What else lies in the memory of one process, and has to be seen by all of a server's."""
_REDIS_ADDRESSES = (
    "PREFECT_REDIS_MESSAGING_URL",
    "PREFECT_REDIS_WORKER_CLEANUP_QUEUE_URL",
    "PREFECT_SERVER_DOCKET_URL",
)
_TOKENS = "PREFECT_SERVER_CSRF_PROTECTION_ENABLED"


def site_environment(settings: Settings) -> dict[str, str]:
    """Environment of everything that belongs to the site on this machine."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    prefect = {
        "PREFECT_HOME": str(settings.home / "prefect"),
        "PREFECT_API_URL": settings.api_url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        # What waits for a place is not late.
        "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
        # Old events by Prefect's own settings, and what removed runs have left; the runs
        # themselves are removed by the settings of `headway prune`.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,orphans",
        "PREFECT_CLI_PROMPT": "false",
        # The server takes as long for a line as for many, and has those of all runs to take.
        "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "5",
        _TOKENS: "true",
        # A page of another site may not read; the UI asks where it came from, by whichever of the
        # machine's names that was.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": settings.api_url.removesuffix("/api"),
        "PREFECT_UI_API_URL": "/api",
        VERSION_CHECK: "False",
    }
    if settings.server_database is not None:
        prefect |= _for_prefect(settings.server_database)
    if settings.redis is not None:
        prefect |= _SHARED | dict.fromkeys(_REDIS_ADDRESSES, settings.redis)
    # Nor may it ask. No browser tells the auth string for it, so that a token besides would only
    # cost the server a query for each request.
    if secret := site_auth(settings):
        prefect |= {auth.CLIENT: secret, auth.SERVER: secret, _TOKENS: "false"}
    # The executables beside this Python come first: `prefect` must be the tested one.
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    modules = [str(PROJECT), *filter(None, [env.get("PYTHONPATH")])]  # flows, blocks
    site = {
        # All of them: what is started again later must not go by a file that was edited since.
        **{f"HEADWAY_{name.upper()}": as_text(it) for name, it in settings if it is not None},
        "HEADWAY_TIMEZONE": os.environ.get("HEADWAY_TIMEZONE")
        or tzlocal.get_localzone_name()
        or "UTC",  # a small machine may have no /etc/localtime
    }
    return {**env, **prefect, **site, "PATH": path, "PYTHONPATH": os.pathsep.join(modules)}


def as_text(value: object) -> str:
    """A setting as its variable has it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_TLS = "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_TLS_"
_FILES = {"sslrootcert": "CA_FILE", "sslcert": "CERT_FILE", "sslkey": "KEY_FILE"}
"""Parameters of an address as libpq knows them, and what Prefect's server calls them."""


def _for_prefect(url: str) -> dict[str, str]:
    """Settings by which Prefect's server connects to *url*.

    Its driver does not know libpq's parameters for TLS: it would fail at the first connection.
    """
    address = make_url(url).set(drivername="postgresql+asyncpg")
    mode = address.query.get("sslmode")
    files = {
        name: str(address.query[given]) for given, name in _FILES.items() if given in address.query
    }
    address = address.difference_update_query(["sslmode", *_FILES])
    tls = {}
    if mode in {"verify-ca", "verify-full"}:
        named = {"ENABLED": "true", "CHECK_HOSTNAME": str(mode == "verify-full").lower()}
        system = {name: path for name, path in files.items() if path != "system"}
        tls = {f"{_TLS}{name}": value for name, value in (named | system).items()}
    elif mode is not None:
        address = address.update_query_dict({"ssl": mode})
    rendered = address.render_as_string(hide_password=False)
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": rendered, **tls}


def prefect_command(settings: Settings) -> str:
    """What a person types for `prefect`, so that it finds this site."""
    note = settings.state_dir / "profile"
    return note.read_text().strip() if note.exists() else "prefect"


_INSTEAD = (
    "auth strings, passwords and jobs would cross the network unprotected: give an address that "
    "speaks TLS ({tls}), or name networks that only the site's own machines are on (a VPN, a "
    "cable of their own) in HEADWAY_TRUSTED_NETWORKS, such as 10.8.0.0/24"
)

_SPEAKS_TLS = {"postgresql": "?sslmode=verify-full", "redis": "rediss"}
"""What asks for TLS in an address, by its scheme."""


def check_connections(settings: Settings) -> None:
    """Check where this machine listens, and whom it asks.

    Raises:
        InvalidInput: Others could read or change what crosses the network there.
    """
    check_connection(settings, "HEADWAY_HOST", f"http://{_bracketed(settings.host)}")
    check_connection(settings, "HEADWAY_SERVER_URL", settings.api_url)
    check_connection(settings, "HEADWAY_LEDGER_URL", settings.known_ledger or "")
    check_connection(settings, "HEADWAY_SERVER_DATABASE_URL", settings.server_database or "")
    check_connection(settings, "HEADWAY_REDIS_URL", settings.redis or "")


def check_connection(settings: Settings, field: str, url: str) -> None:
    """The same for one address, which was given as *field*.

    Raises:
        InvalidInput: As above.
    """
    host = urlsplit(url).hostname
    if host and is_exposed(url, _addresses(host), settings.trusted_networks):
        tls = _SPEAKS_TLS.get(urlsplit(url).scheme.partition("+")[0], "https")
        raise InvalidInput(field, host, _INSTEAD.format(tls=tls))


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []  # who connects to it says that there is no such machine
    return sorted({str(address[0]) for *_, address in found})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
