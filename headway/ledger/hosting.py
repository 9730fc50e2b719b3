"""What is asked of a PostgreSQL that headway itself started: does it answer, what is in it."""

from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import make_url

LEDGER_DATABASE = "headway"
PREFECT_DATABASE = "prefect"
OWNER = "headway"
_MAINTENANCE = "postgres"
_CONNECT_S = 5
_NEW, _OLD = "_restored", "_replaced"
_WRONG = "password authentication failed"


def socket_url(folder: str, password: str) -> str:
    """Address of the ledger in the cluster whose socket lies in *folder*."""
    url = make_url("postgresql://")
    url = url.set(username=OWNER, password=password, database=LEDGER_DATABASE)
    return url.update_query_dict({"host": folder}).render_as_string(hide_password=False)


def folder_of(url: str) -> Path:
    """The folder in which the socket of the cluster lies that *url* leads into."""
    return Path(str(make_url(url).query["host"]))


def answers(url: str) -> bool:
    """Whether the cluster that *url* leads into takes connections."""
    return _refusal(url) is None


def refuses(url: str) -> bool:
    """Whether the cluster that *url* leads into runs, and has another password."""
    return _WRONG in str(_refusal(url))


def speaks(url: str) -> bool:
    """Whether the cluster that *url* leads into takes or refuses a password."""
    why = _refusal(url)
    return why is None or _WRONG in str(why)


def hangs(url: str) -> bool:
    """Whether the cluster is there and gives no answer; one that refuses may be starting."""
    return isinstance(_refusal(url), psycopg.errors.ConnectionTimeout)


def _refusal(url: str) -> psycopg.OperationalError | None:
    """Why no connection is taken; None where one is."""
    try:
        _connect(url, _MAINTENANCE).close()
    except psycopg.OperationalError as error:
        return error
    return None


def have_databases(url: str) -> None:
    """Have the databases of ledger and Prefect's server in the cluster that *url* leads into."""
    with _connect(url, _MAINTENANCE) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        for name in {LEDGER_DATABASE, PREFECT_DATABASE} - {row[0] for row in rows}:
            connection.execute(
                SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name))
            )
    with _connect(url, PREFECT_DATABASE) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")


def is_empty(url: str) -> bool:
    """Whether the ledger's database has no tables yet."""
    with _connect(url, LEDGER_DATABASE) as connection:
        found = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1")
        return found.fetchone() is None


def database_of(url: str, name: str) -> str:
    """Address of the database *name* in the cluster that *url* leads into."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def make_beside(url: str) -> dict[str, str]:
    """Make an empty database beside each of the two; their names, by what they are for."""
    beside = {"ledger": f"{LEDGER_DATABASE}{_NEW}", "prefect": f"{PREFECT_DATABASE}{_NEW}"}
    left = [f"{name}{_OLD}" for name in (LEDGER_DATABASE, PREFECT_DATABASE)]
    with _connect(url, _MAINTENANCE) as connection:
        for name in (*beside.values(), *left):  # of an earlier try that was broken off
            connection.execute(SQL("DROP DATABASE IF EXISTS {}").format(Identifier(name)))
        for name in beside.values():
            make = "CREATE DATABASE {} TEMPLATE template0"
            connection.execute(SQL(make).format(Identifier(name)))
    return beside


def exchange(url: str) -> None:
    """Put those that `make_beside` made in the place of the two, which are dropped then."""
    names = (LEDGER_DATABASE, PREFECT_DATABASE)
    with _connect(url, _MAINTENANCE) as connection:
        with connection.transaction():
            for name in names:
                for before, after in ((name, f"{name}{_OLD}"), (f"{name}{_NEW}", name)):
                    rename = SQL("ALTER DATABASE {} RENAME TO {}")
                    connection.execute(rename.format(Identifier(before), Identifier(after)))
        for name in names:
            old = Identifier(f"{name}{_OLD}")
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(old))


def size_bytes(url: str) -> int:
    """What all databases of the cluster take on the disk."""
    with _connect(url, _MAINTENANCE) as connection:
        sizes = connection.execute("SELECT pg_database_size(oid) FROM pg_database").fetchall()
    return sum(int(str(row[0])) for row in sizes)


def _connect(url: str, database: str) -> psycopg.Connection[tuple[object, ...]]:
    parts = make_url(url)
    return psycopg.connect(
        host=str(parts.query["host"]),
        user=parts.username,
        password=parts.password,
        dbname=database,
        connect_timeout=_CONNECT_S,
        autocommit=True,
    )
