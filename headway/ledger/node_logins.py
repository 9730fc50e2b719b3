"""Logins of nodes: roles of PostgreSQL that may do what an agent and its flows do, and no more.

Which rows they see and change is said by the policies of migration 0041, which ask `node_login`
whose login it is. Here is said which tables: of what is not named here they may do nothing.
"""

from collections.abc import Mapping, Sequence
from secrets import token_hex, token_urlsafe

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal
from sqlalchemy import Connection, delete, func, text
from sqlmodel import Session, col, select

from headway.ledger.access_tables import NodeLoginRow, NodeTokenRow
from headway.ledger.audit_log import Act, note
from headway.ledger.columns import now
from headway.ledger.database import Repository, one_at_a_time
from headway.ledger.errors import LedgerRefused

_RUN = (
    "state, attempt, exit_kind, exit_code, exit_message, ended_at, measurement, prediction, "
    "demand, demand_override, container, runtime, started_at, claimed_at, resource, reason, "
    "expected_start_at, flow_starts, flow_starts_since, preempted_for, preemptions, "
    "ready_attempt, place, rows_removed_at"
)
"""What an attempt writes of its run: not whose it is, what it does, nor where, nor what its user
wants and what Prefect was told."""
_LEASE = (
    "run_id, gang_rank, host_memory_bytes, cpus, disk_bytes, expires_at, predicted_end_at, "
    "released_at, start_by"
)
_ALL = "SELECT, INSERT, UPDATE, DELETE"
GRANTS: Mapping[str, str] = {
    "node": "SELECT, INSERT, UPDATE",
    "node_key": "SELECT, INSERT, UPDATE",
    "node_token": "SELECT, INSERT, UPDATE",
    "run": f"SELECT, INSERT, UPDATE ({_RUN})",
    "lease": f"SELECT, UPDATE ({_LEASE})",
    "lease_gpu": "SELECT, INSERT, DELETE",
    "lease_port": "SELECT, DELETE",
    "attempt": "SELECT, INSERT, UPDATE",
    "stored": "SELECT, INSERT, UPDATE",
    "notice": "SELECT, INSERT, DELETE",
    "telemetry": "SELECT, INSERT, DELETE",
    "setting": "SELECT, INSERT, UPDATE",
    "trace": "SELECT, INSERT",
    "team_uids": "SELECT, INSERT",
    **dict.fromkeys(
        ("step", "progress", "standing", "warning", "staging", "gang_ask", "staged", "staged_use"),
        _ALL,
    ),
    **dict.fromkeys(
        (
            "leader", "start_forecast", "alembic_version",
            "code", "code_chunk", "upload", "job_array", "engine_pool",
        ),
        "SELECT",
    ),
}  # fmt: skip
"""By table, in PostgreSQL's words."""

_SEQUENCES = (
    "trace_trace_id_seq", "telemetry_point_id_seq", "notice_notice_id_seq", "gang_ask_ask_id_seq",
)  # fmt: skip


class NodeLogins(Repository):
    """The roles of nodes, and whose each is."""

    def add(self, node: str, *, actor: str) -> str:
        """Make a login for *node*, in the place of one that it had; the ledger's address with it.

        Raises:
            LedgerRefused: The ledger's own role may make none (`CREATEROLE`), or any role may
                make tables beside the ledger's.
        """
        role, password = f"{node[:40]}_{token_hex(4)}", token_urlsafe(24)
        url = self._database.engine.url
        with self._database.transaction() as session:
            connection = session.connection()
            one_at_a_time(connection)
            _drop(session, node)
            make = SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            secret = Literal(_digest(connection, role, password))
            _execute(connection, make.format(Identifier(role), secret))
            session.add(NodeLoginRow(role=role, node=node, made_at=now(session)))
            session.flush()
            grant(connection, [role])
            keep_out = SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC")
            _execute(connection, keep_out.format(Identifier(url.database or "")))
            if session.scalar(select(func.has_schema_privilege(role, _schema(session), "CREATE"))):
                raise LedgerRefused("every role may make tables in the schema of the ledger")
            note(session, Act(actor, "node.add", node, {"role": role}))
        own = url.set(drivername="postgresql", username=role, password=password)
        return own.render_as_string(hide_password=False)

    def remove(self, node: str) -> None:
        """Let nobody in any more by the logins of *node*."""
        with self._database.transaction() as session:
            one_at_a_time(session.connection())
            _drop(session, node)

    def renew(self) -> None:
        """Grant anew what an agent of this version needs."""
        with self._database.transaction() as session:
            one_at_a_time(session.connection())
            renew(session.connection())

    def own(self) -> str | None:
        """Whose login this ledger was opened with; None for the owner of all of it."""
        with self._database.reading() as session:
            name: str | None = session.scalar(select(func.login_node()))
            return name


def renew(connection: Connection) -> None:
    """Grant every node's login anew what an agent of this version needs."""
    roles = connection.execute(select(NodeLoginRow.role)).scalars().all()
    grant(connection, [each for each in roles if _is_there(connection, each)])


def grant(connection: Connection, roles: Sequence[str]) -> None:
    """Let *roles* do what `GRANTS` says, and nothing more that a version before let them."""
    if roles:
        to = SQL(", ").join(map(Identifier, roles))
        numbers = SQL(", ").join(map(Identifier, _SEQUENCES))
        _execute(connection, SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(numbers, to))
        for table, what in GRANTS.items():
            words, on = SQL(what), Identifier(table)
            _execute(connection, SQL("REVOKE ALL ON {} FROM {}").format(on, to))
            _execute(connection, SQL("GRANT {} ON {} TO {}").format(words, on, to))


def _drop(session: Session, node: str) -> None:
    connection = session.connection()
    for row in session.exec(select(NodeLoginRow).where(col(NodeLoginRow.node) == node)).all():
        session.delete(row)
        if not _is_there(connection, row.role):
            continue
        role, schema = Identifier(row.role), Identifier(_schema(session))
        for what in (SQL("TABLES"), SQL("SEQUENCES")):
            revoke = SQL("REVOKE ALL ON ALL {} IN SCHEMA {} FROM {}")
            _execute(connection, revoke.format(what, schema, role))
        _execute(connection, SQL("DROP ROLE {}").format(role))
    session.exec(delete(NodeTokenRow).where(col(NodeTokenRow.node) == node))
    session.flush()


def _digest(connection: Connection, role: str, password: str) -> str:
    """What the database keeps of *password*: its log may have every statement."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - see `open_engine`
    return driver.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()


def _is_there(connection: Connection, role: str) -> bool:
    """Whether the server has *role*: a ledger that was restored may be on another one."""
    asked = text("SELECT 1 FROM pg_roles WHERE rolname = :role")
    return connection.execute(asked, {"role": role}).first() is not None


def _schema(session: Session) -> str:
    return str(session.scalar(select(func.current_schema())))


def _execute(connection: Connection, statement: Composable) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - see `open_engine`
    connection.exec_driver_sql(statement.as_string(driver))
