"""A private PostgreSQL for the tests: own directory, own port, gone at the end.

All tests of one process share one, and each has a ledger of its own there, which goes with the
test: `new_ledger`.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import Connection, Engine, Pool, event

from headway.ledger import Ledger

_DEBIAN = Path("/usr/lib/postgresql")
_SHARED = ExitStack()
_LEDGERS: list[str] = []
"""Addresses of those that no test has ended with yet."""
_POOLS: set[Pool] = set()
"""Of all engines that have connected: who forgets one leaves it open until its test is over."""


def _binary(name: str) -> str | None:
    newest = sorted(_DEBIAN.glob(f"*/bin/{name}"), reverse=True)
    return str(newest[0]) if newest else shutil.which(name)


def why_none() -> str:
    """Why no PostgreSQL can be had here; empty when one can be started."""
    if _binary("initdb") is None or _binary("pg_ctl") is None:
        return "PostgreSQL is not installed (root on Debian: make test-deps)"
    return ""


def _as_owner(command: list[str]) -> list[str]:
    # PostgreSQL refuses to run as root.
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]


@contextmanager
def server(
    *options: str,
    address: str = "127.0.0.1",
    network: str = "",
    disk: str = "",
    port: int = 0,
    superuser: str = "headway",
    rule: str = "host all all {network} trust",
) -> Iterator[str]:
    """Start one; its SQLAlchemy address without a database name.

    Args:
        options: More of ``postgres``'s own.
        address: Where it listens, beside loopback.
        network: Hosts that are let in beside this one, such as ``10.0.0.0/24``.
        disk: Where its folder is made; that for temporary files when empty.
        port: Where it listens; a free one when 0.
        superuser: Its first role.
        rule: The line of pg_hba.conf that lets the *network* in.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="headway-pg-", dir=disk or None))
    folder.chmod(0o755)
    data, log = folder / "data", folder / "log"
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    initdb, pg_ctl = _binary("initdb"), _binary("pg_ctl")
    assert initdb is not None
    assert pg_ctl is not None
    try:
        _run([initdb, "-D", str(data), "-A", "trust", "-U", superuser, "--no-sync", "-E", "UTF8"])
        if network:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"{rule.format(network=network)}\n")
        settings = [
            "-p",
            str(port),
            "-c",
            "listen_addresses=" + ",".join(dict.fromkeys(("127.0.0.1", address))),
            "-c",
            "unix_socket_directories=",  # a test's folder may be too long a name for one
        ]
        settings += ["-c", "fsync=off", "-c", "max_connections=60", *options]
        _run([pg_ctl, "-D", str(data), "-l", str(log), "-w", "-o", " ".join(settings), "start"])
        yield f"postgresql://{superuser}@{address}:{port}"
    finally:
        subprocess.run(
            _as_owner([pg_ctl, "-D", str(data), "-m", "immediate", "-w", "stop"]),
            check=False, capture_output=True,
        )  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared() -> str:
    """Address of the server of this process's tests, without a database name."""
    if reason := why_none():
        pytest.skip(reason)
    return _SHARED.enter_context(server("-c", "max_connections=200"))


def stop_shared() -> None:
    """End that server, where there is one."""
    _SHARED.close()


@cache
def ledger_tables() -> str:
    """The name of a database of `shared` with the tables of an empty ledger."""
    url = new_database(shared())
    Ledger.open(url).close()
    return url.rpartition("/")[2]


def new_ledger() -> str:
    """Address of an empty ledger, a copy: to make the tables takes longer."""
    _LEDGERS.append(new_database(shared(), copy_of=ledger_tables()))
    return _LEDGERS[-1]


def with_ledger(home: Path) -> Path:
    """*home*, whose site has an empty ledger that it has joined."""
    home.mkdir(parents=True, exist_ok=True)
    if not (note := home / "ledger.url").exists():
        note.write_text(new_ledger())
    return home


@event.listens_for(Engine, "engine_connect")
def _remember(connection: Connection) -> None:
    _POOLS.add(connection.engine.pool)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Close the connections and drop the ledgers that are made within it."""
    pools, ledgers = set(_POOLS), len(_LEDGERS)
    yield
    for pool in _POOLS - pools:
        pool.dispose()
    _POOLS.intersection_update(pools)
    made = _LEDGERS[ledgers:]
    del _LEDGERS[ledgers:]
    if made:
        with psycopg.connect(f"{shared()}/postgres", autocommit=True) as connection:
            for url in made:
                name = Identifier(url.rpartition("/")[2])
                connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def new_database(address: str, copy_of: str = "template1") -> str:
    """Address of a new database of the server at *address*: an empty one, or a copy."""
    name = f"ledger_{uuid4().hex}"
    make = SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")  # a quarter less work
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(make.format(Identifier(name), Identifier(copy_of)))
    return f"{address}/{name}"


def _run(command: list[str]) -> None:
    done = subprocess.run(
        _as_owner(command), check=False, capture_output=True, text=True, cwd="/", timeout=60
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
