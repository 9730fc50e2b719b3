"""Nodes and their scheduler call each other: who writes what another one waits for says so.

A call may be lost, with a connection or a process; so each looks by itself now and then.
"""

import hashlib
import select as sockets
from collections.abc import Iterable

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import func
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, select

from headway.errors import LedgerUnreachable
from headway.ledger.database import Database, Repository, shown


class Calls(Repository):
    """Notifications of PostgreSQL."""

    def __init__(self, database: Database) -> None:
        """Calls over *database*; nobody listens yet."""
        super().__init__(database)
        self._listening: psycopg.Connection | None = None

    def send(self, whom: Iterable[str], run_id: str = "") -> None:
        """Call nodes, or `scheduler_of` a pool; those that listen alone hear it.

        Args:
            whom: Once each is enough.
            run_id: A run that the call is about; empty: look at what was granted, or at the queue.
        """
        names = sorted(set(whom))
        if names:
            with self._database.transaction() as session:
                for name in names:
                    call(session, name, run_id)

    def wait(self, name: str, timeout_s: float) -> list[str]:
        """Wait for calls of *name*; the run of each, or ``""``. None came: no item.

        One thread may wait, for one name.

        Raises:
            LedgerUnreachable: The database does not answer; the next call connects anew.
        """
        try:
            connection = self._connection(name)
            if not sockets.select([connection.fileno()], [], [], timeout_s)[0]:
                return []
            connection.pgconn.consume_input()  # raises where the server has gone
            return [each.extra.decode() for each in iter(connection.pgconn.notifies, None)]
        except (psycopg.Error, DBAPIError, OSError) as error:
            self.close()
            why = str(error).strip().partition("\n")[0]
            raise LedgerUnreachable(shown(self._database.engine), why) from error

    def close(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _connection(self, name: str) -> psycopg.Connection:
        """One of its own, that no transaction uses."""
        if self._listening is None:
            lent = self._database.engine.raw_connection()
            connection = lent.driver_connection
            lent.detach()
            assert isinstance(connection, psycopg.Connection)  # noqa: S101 - see `open_engine`
            connection.autocommit = True
            connection.execute(SQL("LISTEN {}").format(Identifier(_channel(name))))
            self._listening = connection
        return self._listening


def scheduler_of(pool: str) -> str:
    """What the scheduler of *pool* is called here; no node is: names of nodes have no slash."""
    return f"{pool}/scheduler"


def call(session: Session, name: str, run_id: str = "") -> None:
    """Call *name*, see `Calls.send`, once the transaction of *session* has ended well."""
    session.exec(select(func.pg_notify(_channel(name), run_id)))


def _channel(name: str) -> str:
    """A channel for each, so that nobody else is woken; its name has at most 63 bytes."""
    return f"headway_call_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
