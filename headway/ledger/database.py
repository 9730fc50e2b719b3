"""Opens the ledger's database, a PostgreSQL.

One writer at a time is what makes admission right: whoever grants locks the
node's row; "select the sum, then insert" without it overcommits (measured: 137
of 200 rounds). What only reads says so (`Database.reading`): it cannot write.
"""

import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from threading import Timer
from typing import Any
from weakref import WeakSet

from psycopg.errors import InsufficientPrivilege
from sqlalchemy import (
    URL,
    Connection,
    Dialect,
    Engine,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.pool import QueuePool
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import InvalidInput, LedgerError, LedgerUnreachable
from headway.ledger.codec import T, record
from headway.ledger.errors import LedgerNewer, LedgerRefused
from headway.model.document import HIDDEN
from headway.waits import waiting_for

SCHEMA_VERSION = "0048"
"""The newest migration; a test holds it to what Alembic says."""

_FROZEN_MS = 15_000
"""Who does nothing for so long in the middle of a transaction is frozen: PostgreSQL ends it, since
everybody else waits for the rows that it holds."""
_ENGINES: WeakSet[Engine] = WeakSet()
_MOST_CONNECTIONS = 32
_BRIEF_S = 1.0
_MIGRATION_LOCK = 0x68656164  # "head": the advisory lock's number


class Connections(Enum):
    """How many connections a process keeps between its questions; more are closed at once."""

    MANY = 16
    """Of many that ask: to open one costs 10 ms."""
    ONE = 1
    BRIEF = 0
    """One, which is closed when nothing was asked for `_BRIEF_S`."""


def open_engine(url: str, keep: Connections = Connections.MANY) -> Engine:
    """An engine for *url* with the settings that the ledger's promises rest on.

    Raises:
        InvalidInput: It is no address of a database that can be a ledger.
    """
    try:
        return _engine(make_url(url), keep)
    except (ArgumentError, ImportError, ValueError):
        # What was given may hold a password, and so may SQLAlchemy's words about it.
        allowed = "give an address such as postgresql://user@host/headway"
        raise InvalidInput("HEADWAY_LEDGER_URL", HIDDEN, allowed) from None


def _engine(address: URL, keep: Connections) -> Engine:
    if address.get_backend_name() != "postgresql":
        raise ArgumentError("no other database keeps the ledger's promises")
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    engine = create_engine(
        address,
        pool_pre_ping=True,
        pool_size=max(keep.value, 1),
        max_overflow=_MOST_CONNECTIONS - max(keep.value, 1),
        # A server that vanishes from the network is given up soon, not after the system's 15 min.
        connect_args={
            "client_encoding": "utf8",  # a cluster made without a locale would answer in bytes
            "connect_timeout": 10,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
            "options": f"-c idle_in_transaction_session_timeout={_FROZEN_MS}",
        },
    )
    # Psycopg's `executemany` is a pipeline: who is stopped in the middle of one is not idle for
    # PostgreSQL, and would keep its rows for ever. Rows are inserted in one statement instead.
    engine.dialect.use_insertmanyvalues_wo_returning = True
    _ask_only_who_has_word(engine.dialect)
    engine.dialect.supports_sane_multi_rowcount = False
    event.listen(engine, "do_executemany", _one_by_one)
    if keep is Connections.BRIEF:
        _close_idle(engine)
    _ENGINES.add(engine)
    return engine


def _ask_only_who_has_word(dialect: Dialect) -> None:
    """Spare a connection on which nothing has come the question whether it still lives.

    The end of a server, or keepalives that it does not answer, make its socket readable at once.
    """
    ping = dialect.do_ping

    def lives(connection: Any) -> bool:
        ready = select.poll()
        ready.register(connection.fileno(), select.POLLIN)
        return not ready.poll(0) or ping(connection)

    dialect.do_ping = lives  # type: ignore[assignment,method-assign]


def _leave_connections() -> None:
    """Have a process that was forked open its own: two on one would read each other's answers."""
    for engine in tuple(_ENGINES):
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_connections)


def _close_idle(engine: Engine) -> None:
    """Let *engine* close its connections whenever nobody has used any for `_BRIEF_S`."""

    def close() -> None:
        if isinstance(engine.pool, QueuePool) and not engine.pool.checkedout():
            engine.dispose()

    timer = Timer(0.0, close)

    def used(*_: object) -> None:
        timer.cancel()

    def unused(*_: object) -> None:
        nonlocal timer
        timer.cancel()
        timer = Timer(_BRIEF_S, close)
        timer.daemon = True
        timer.start()

    event.listen(engine, "checkout", used)
    event.listen(engine, "checkin", unused)


def _one_by_one(cursor: Any, statement: str, parameters: Iterable[Any], _context: object) -> bool:
    for each in parameters:
        cursor.execute(statement, each)
    return True


def shown(engine: Engine) -> str:
    """Its address without the password."""
    return engine.url.render_as_string(hide_password=True)


def one_at_a_time(connection: Connection) -> None:
    """Wait for whoever changes tables, or what is granted on them; others wait for this one."""
    lock = text("SELECT pg_advisory_xact_lock(:number)")
    connection.execute(lock, {"number": _MIGRATION_LOCK})


class Database:
    """Transactions on one engine. Vendor's errors come out as ours."""

    def __init__(self, engine: Engine) -> None:
        """Work on *engine*."""
        self.engine = engine
        self._name = f"the ledger at {shown(engine)}, which is locked or slow"
        # The same pool: the options are told to each connection while it is lent.
        one_moment = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._of_one_moment = engine.execution_options(**one_moment)
        # READ COMMITTED shows each question another moment in any case: without a transaction
        # around them two of three statements that the database gets are spared.
        self._alone = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._readers = engine.execution_options(isolation_level="AUTOCOMMIT")
        event.listen(self._readers, "before_cursor_execute", _must_read)

    @contextmanager
    def reading(self, *, one_moment: bool = False) -> Iterator[Session]:
        """Questions only: they wait for no writer, and none for them.

        Args:
            one_moment: All of them see what was true at the first, in one transaction; else each
                what is true when it is asked.

        Raises:
            LedgerUnreachable: The database does not answer.
            LedgerError: It was to write.
        """
        with self._session(self._of_one_moment if one_moment else self._readers) as session:
            yield session

    @contextmanager
    def one_statement(self) -> Iterator[Session]:
        """For a single statement that writes, which is committed as it ends.

        Who is stopped behind it holds no row, as it would until the COMMIT of a transaction.

        Raises:
            LedgerUnreachable: As `transaction`.
            LedgerError: As there.
        """
        with self._session(self._alone) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One short transaction that writes; committed at the end, rolled back on any error.

        Raises:
            LedgerUnreachable: The database does not answer, is locked for too
                long, has no room or refuses to write.
            LedgerError: It answers, but the change breaks one of its rules.
        """
        with self._session(self.engine) as session:
            yield session

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        with (
            self._reached(),
            Session(engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def migrate(
        self, to: str = SCHEMA_VERSION, then: Callable[[Connection], None] | None = None
    ) -> bool:
        """Bring the tables to the schema *to*; whether they had another one.

        Safe when several start at once.

        Args:
            to: The newest, or one on the way to it.
            then: What belongs to the change: nobody sees the one without the other.

        Raises:
            LedgerNewer: The tables are newer than this code.
        """
        found = self.schema_version()
        if found == to:
            return False
        if found is not None and found > SCHEMA_VERSION:
            raise LedgerNewer(found, SCHEMA_VERSION)
        # Alembic takes a third of a second to import: only when there is work for it.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self._reached(), self.engine.connect() as connection, connection.begin():
            one_at_a_time(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            if then is not None:
                then(connection)
        return True

    def schema_version(self) -> str | None:
        """The schema that the database has; None when it is empty."""
        with self._reached(), self._readers.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            return str(
                connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
            )

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """A driver's error as ours."""
        try:
            with waiting_for(self._name):
                yield
        except IntegrityError as error:
            raise LedgerError(
                f"the ledger refused a change that breaks one of its rules ({_cause(error)}); "
                "nothing was changed"
            ) from error
        except DBAPIError as error:
            if isinstance(error.orig, InsufficientPrivilege):
                raise LedgerRefused(_cause(error)) from error
            stopped = "its PostgreSQL is stopped; `headway up` starts it"
            cause = stopped if _is_stopped(self.engine) else _cause(error)
            raise LedgerUnreachable(shown(self.engine), cause) from error


def _must_read(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
    if not statement.startswith(("SELECT", "WITH")):
        raise LedgerError(f"{statement.split(maxsplit=1)[0]} where the ledger is only read")


def _is_stopped(engine: Engine) -> bool:
    """Whether its address is a socket that is not there: nobody listens."""
    folder = engine.url.query.get("host")
    return isinstance(folder, str) and folder.startswith("/") and not any(Path(folder).glob(".s.*"))


def _cause(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "no answer"


class Repository:
    """What reads and writes some tables of one database; each call is one transaction."""

    def __init__(self, database: Database) -> None:
        """Work on *database*."""
        self._database = database

    def _records(self, kind: type[T], query: SelectOfScalar[Any]) -> list[T]:
        """Of each row of *query* the value of *kind*, which has fields of the same names."""
        with self._database.reading() as session:
            return [record(kind, row) for row in session.exec(query)]
