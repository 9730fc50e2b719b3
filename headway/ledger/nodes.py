"""Nodes of the site, their readings, and what operators set."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from headway.errors import NodeNameTaken
from headway.ledger.audit_log import Act, note
from headway.ledger.codec import record
from headway.ledger.columns import among, db_now, now
from headway.ledger.database import Database, Repository
from headway.ledger.engine_tables import pools_as_they_are, refuse_of_engine
from headway.ledger.lease_rows import LIVE, release_all
from headway.ledger.records import NodeRecord
from headway.ledger.tables import LeaseRow, NodeKeyRow, NodeRow, SettingRow, StagedRow, StagedUseRow
from headway.model.access import BY_A_BLOCK, changes, token_digest
from headway.model.gpu_health import GpuDrain, Sickness
from headway.model.lease import NO_EXPIRY
from headway.model.node import (
    Capacity,
    MemoryMeans,
    Node,
    NodePorts,
    NodeReading,
    NodeState,
    Reserve,
)

_REPORTS_S = 60.0
"""A node whose worker was heard of within so long is at work."""
_GOOD_S = 1.0
"""A setting that was read is taken for what it is for so long."""


class Nodes(Repository):
    """The node table."""

    def register(self, node: Node, *, boot_id: str, worker_token: str, identity: str = "") -> None:
        """Put *node* into the ledger, or take it over from the worker before.

        A node that an operator drained stays drained.

        Args:
            node: The node.
            boot_id: Of its machine.
            worker_token: Of the worker that reports from now on.
            identity: The id that the node keeps in its home.

        Raises:
            NodeNameTaken: Another node of this name reports, or holds leases.
            InvalidInput: Its pool is an engine's.
        """
        with self._database.transaction() as session:
            pools_as_they_are(session)
            refuse_of_engine(session, node.pool)
            known = session.get(NodeRow, node.name, with_for_update=True)
            if known is not None and known.removed_at is None:
                _refuse_another(session, known, identity, boot_id)
            drained = known is not None and known.state is NodeState.DRAINING
            digest = token_digest(worker_token)
            same = known is not None and known.worker_token == digest
            session.merge(
                NodeRow(
                    name=node.name,
                    pool=node.pool,
                    state=NodeState.DRAINING if drained else NodeState.READY,
                    state_reason=known.state_reason if known is not None and drained else "",
                    cpus=node.capacity.cpus,
                    host_memory_bytes=node.capacity.host_memory_bytes,
                    gpus=node.capacity.gpus,
                    reserve_cpus=node.reserve.cpus,
                    reserve_host_memory_bytes=node.reserve.host_memory_bytes,
                    price_per_hour=node.price_per_hour,
                    gpu_price_per_hour=node.gpu_price_per_hour,
                    ports=node.ports,
                    boot_id=boot_id,
                    identity=identity,
                    worker_token=digest,
                    heartbeat_at=now(session),
                    files_url=known.files_url if known is not None and same else "",
                    files_certificate=known.files_certificate if known is not None and same else "",
                    gpu_drains=(known.gpu_drains if known is not None else None) or {},
                )
            )
            session.flush()
            session.merge(NodeKeyRow(node=node.name, key=worker_token))

    def serves_files(self, name: str, worker_token: str, *, url: str, certificate: str) -> None:
        """Note where the node's worker serves files; nothing if another worker has the node."""
        with self._database.transaction() as session:
            row = session.get(NodeRow, name, with_for_update=True)
            if row is not None and row.worker_token == token_digest(worker_token):
                row.files_url, row.files_certificate = url, certificate

    def set_ports(self, name: str, worker_token: str, ports: NodePorts) -> None:
        """Note how the node's ports are used; nothing if another worker has the node."""
        with self._database.transaction() as session:
            row = session.get(NodeRow, name, with_for_update=True)
            if row is not None and row.worker_token == token_digest(worker_token):
                row.ports = ports

    def check_name(self, name: str, *, pool: str, identity: str, boot_id: str) -> None:
        """Raise `NodeNameTaken` or `InvalidInput` where `register` would."""
        with self._database.reading() as session:
            refuse_of_engine(session, pool)
            known = _row(session, name)
            if known is None:
                return
            _refuse_another(session, known, identity, boot_id)

    def heartbeat(self, name: str, worker_token: str, reading: NodeReading) -> bool:
        """Keep the newest reading; False when another worker took the node over."""
        own = col(NodeRow.name) == name, col(NodeRow.worker_token) == token_digest(worker_token)
        newest = update(NodeRow).where(*own).values(reading=reading, heartbeat_at=db_now())
        with self._database.one_statement() as session:
            return session.execute(newest.returning(col(NodeRow.name))).first() is not None

    def judge_gpus(
        self,
        name: str,
        worker_token: str,
        *,
        sick: Mapping[str, Mapping[Sickness, str]],
        well: Collection[str] = (),
    ) -> None:
        """Let GPUs that are *sick* take no runs, and those that are *well* take them again.

        Nothing changes if another worker has the node. What a drained GPU has had stays told.
        """
        with self._database.transaction() as session:
            row = _row(session, name, lock=True)
            if row is None or row.worker_token != token_digest(worker_token):
                return
            drains = {
                uuid: each for uuid, each in (row.gpu_drains or {}).items() if uuid not in well
            }
            for uuid, why in sick.items():
                before = drains.get(uuid, GpuDrain(now(session), {}))
                drains[uuid] = GpuDrain(before.since, {**before.why, **why})
            row.gpu_drains = drains

    def watch_alone(self, name: str, uuid: str, why: str, *, tries_again: bool) -> None:
        """Note that on a GPU of node *name* runs are kept to their memory by the watch, and *why*.

        Until its worker is started anew, or *tries_again* what is stronger.
        """
        with self._database.transaction() as session:
            row = _row(session, name, lock=True)
            if row is not None:
                row.gpus = tuple(
                    replace(gpu, kept_by=MemoryMeans.WATCH, kept_why=why, tries_again=tries_again)
                    if gpu.uuid == uuid
                    else gpu
                    for gpu in row.gpus
                )

    def gpu_was_reset(self, name: str, uuid: str, *, actor: str) -> bool:
        """Note that *actor* says so of a drained GPU; False when it is not drained."""
        with self._database.transaction() as session:
            row = _row(session, name, lock=True)
            drains = dict((row.gpu_drains if row is not None else None) or {})
            if row is None or uuid not in drains:
                return False
            note(session, Act(actor, "node.gpu.reset", name, {"gpu": uuid}))
            drains[uuid] = replace(drains[uuid], reset_at=now(session))
            row.gpu_drains = drains
            return True

    def gpu_drains(self, name: str) -> Mapping[str, GpuDrain]:
        """Of the node called *name*, the GPUs that take no runs; empty if there is none."""
        own = col(NodeRow.name) == name, col(NodeRow.removed_at).is_(None)
        with self._database.reading() as session:
            return session.exec(select(NodeRow.gpu_drains).where(*own)).first() or {}

    def get(self, name: str) -> NodeRecord | None:
        """The node called *name*."""
        found = self._known(_with_keys().where(NodeRow.name == name))
        return found[0] if found else None

    def all(self, names: Collection[str] | None = None) -> list[NodeRecord]:
        """Every node, by name; with *names* those of them."""
        query = _with_keys().order_by("name")
        return self._known(query if names is None else query.where(among(NodeRow.name, names)))

    def _known(self, query: SelectOfScalar[Any]) -> list[NodeRecord]:
        with self._database.reading() as session:
            return [node_record(row, key or "") for row, key in session.exec(query)]

    def files_urls(self) -> list[str]:
        """Where the nodes serve files of runs; each node asks this often."""
        with self._database.reading() as session:
            query = select(NodeRow.files_url).where(_on_site(), col(NodeRow.files_url) != "")
            return list(session.exec(query))

    def set_state(self, name: str, state: NodeState, reason: str, *, actor: str = "") -> bool:
        """Drain a node or make it ready again; False when there is none of that name.

        Args:
            name: The node.
            state: What it becomes.
            reason: Why, for people.
            actor: Whose act it is, for the audit table; empty where headway itself does it.
        """
        with self._database.transaction() as session:
            row = _row(session, name, lock=True)
            if row is None:
                return False
            if actor:
                told = {"from": row.state.value, "to": state.value, "reason": reason}
                note(session, Act(actor, "node.state", name, told))
            row.state, row.state_reason = state, reason
            return True

    def held_s(self, name: str, margin_s: float) -> float:
        """Seconds until *margin_s* after the last expiry of a lease on the node has passed.

        At most 0 where nothing may run there any more; infinity where its leases do not expire.
        """
        with self._database.reading() as session:
            return _held_s(session, name, margin_s)

    def remove(self, name: str, *, margin_s: float | None = None, actor: str = "") -> bool:
        """Forget the node, what was staged there and what it holds, in one transaction.

        From then on its guard renews nothing, and whatever an attempt there writes is refused.

        Args:
            name: The node.
            margin_s: Only if `held_s` with this margin has passed; None for an operator who
                knows that its machine is off.
            actor: Whose act it is, for the audit table.

        Returns:
            False when there is none of that name, or it may still hold something.
        """
        with self._database.transaction() as session:
            row = _row(session, name, lock=True)
            if row is None or (margin_s is not None and _held_s(session, name, margin_s) > 0):
                return False
            if actor:
                told = {"powered_off": "yes" if margin_s is None else "no"}
                note(session, Act(actor, "node.remove", name, told))
            release_all(session, LeaseRow.node == name)
            row.removed_at = now(session)
            row.files_url = row.files_certificate = ""
            row.worker_token = ""  # a worker that comes back is told that the node is not its own
            for table in (StagedUseRow, StagedRow, NodeKeyRow):
                session.exec(delete(table).where(col(table.node) == name))
            return True


class SiteSettings(Repository):
    """What operators set in blocks, as the workers last read it, and where the gateway is.

    What `get` has read it says again for `_GOOD_S`: an attempt asks ten times in a moment.
    """

    def __init__(self, database: Database) -> None:
        """Those that *database* has."""
        super().__init__(database)
        self._read: dict[str, tuple[float, dict[str, Any] | None]] = {}

    def put(self, name: str, document: dict[str, Any], *, actor: str = BY_A_BLOCK) -> bool:
        """Keep *document* under *name*; whether it changed. *actor* is who changes it."""
        if self.of((name,)).get(name) == document:
            return False  # nobody needs to be let change what stays as it is
        with self._database.transaction() as session:
            row = session.get(SettingRow, name, with_for_update=True)
            if row is not None and row.document == document:
                return False
            before = row.document if row is not None and row.document is not None else {}
            if told := changes(before, document):
                note(session, Act(actor, "setting.change", name, told))
            session.merge(SettingRow(name=name, document=document, updated_at=now(session)))
        self._note(name, time.monotonic() + _GOOD_S, document)
        return True

    def keep(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep what headway itself has learnt; nobody has changed anything."""
        with self._database.transaction() as session:
            session.merge(SettingRow(name=name, document=dict(document), updated_at=now(session)))
        self._note(name, time.monotonic() + _GOOD_S, dict(document))

    def get(self, name: str) -> dict[str, Any] | None:
        """The document under *name*; what another process has put counts within `_GOOD_S`."""
        until_s, document = self._read.get(name, (0.0, None))
        if time.monotonic() >= until_s:
            document = self.of((name,)).get(name)
        return deepcopy(document)

    def newer(
        self, name: str, than: datetime | None
    ) -> tuple[dict[str, Any] | None, datetime] | None:
        """The document under *name* and since when it is so; None where it is not newer."""
        with self._database.reading() as session:
            query = select(SettingRow).where(col(SettingRow.name) == name)
            if than is not None:
                query = query.where(col(SettingRow.updated_at) > than)
            row = session.exec(query).one_or_none()
            return None if row is None else (row.document, row.updated_at)

    def of(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The documents that there are under *names*, as they are now."""
        until_s = time.monotonic() + _GOOD_S
        with self._database.reading() as session:
            rows = session.exec(select(SettingRow).where(col(SettingRow.name).in_(names)))
            found = {row.name: dict(row.document) for row in rows if row.document is not None}
        for name in names:
            self._note(name, until_s, found.get(name))
        return found

    def _note(self, name: str, until_s: float, document: dict[str, Any] | None) -> None:
        if self._read.get(name, (0.0, None))[0] < until_s:  # else it was read, or put, since
            self._read[name] = (until_s, deepcopy(document))


def of_the_site() -> SelectOfScalar[NodeRow]:
    """Rows of nodes that were not removed."""
    return select(NodeRow).where(_on_site())


def _with_keys() -> Any:
    """The same, each with its worker's token where the ledger's login may read it."""
    mine = col(NodeKeyRow.node) == col(NodeRow.name)
    return select(NodeRow, NodeKeyRow.key).join(NodeKeyRow, mine, isouter=True).where(_on_site())


def _on_site() -> ColumnElement[bool]:
    return col(NodeRow.removed_at).is_(None)


def _held_s(session: Session, name: str, margin_s: float) -> float:
    live = (LeaseRow.node == name, LIVE)
    newest = select(func.max(LeaseRow.expires_at)).where(*live)
    last: datetime | None = session.exec(newest).one()
    if last is None:
        return 0.0
    if last >= NO_EXPIRY:
        return math.inf
    return (last - now(session)).total_seconds() + margin_s


def _refuse_another(session: Session, known: NodeRow, identity: str, boot_id: str) -> None:
    """Raise `NodeNameTaken` where *known* is another node than the one that registers now."""
    # Version 0.1 had no ids; there a machine that was started anew is another boot.
    if (known.identity or known.boot_id) == (identity if known.identity else boot_id):
        return
    silent_s = (now(session) - known.heartbeat_at).total_seconds()
    live = (LeaseRow.node == known.name, LIVE)
    leases = session.exec(select(func.count()).select_from(LeaseRow).where(*live)).one()
    if silent_s < _REPORTS_S or (leases and known.identity):
        raise NodeNameTaken(known.name, silent_s, leases)


def _row(session: Session, name: str, *, lock: bool = False) -> NodeRow | None:
    """The row of a node that was not removed."""
    row = session.get(NodeRow, name, with_for_update=lock)
    return None if row is None or row.removed_at else row


def keep_measured(row: NodeRow, reading: NodeReading | None) -> None:
    """Keep what *reading* measured; what only the node's worker knows stays as it told it last."""
    if reading is not None and row.reading is not None:
        row.reading = replace(
            row.reading,
            at=reading.at,
            host=reading.host,
            gpus=reading.gpus,
            gpu_error=reading.gpu_error,
            busy_ports=reading.busy_ports,
        )


def node_record(row: NodeRow, key: str = "") -> NodeRecord:
    """The record of a row, and of its worker's token where that is known."""
    # What cannot be read is promised to nobody; the node's worker writes it anew.
    capacity = Capacity(row.cpus, row.host_memory_bytes, row.gpus or ())
    reserve = Reserve(row.reserve_cpus, row.reserve_host_memory_bytes)
    ports, drains = row.ports or NodePorts(), row.gpu_drains or {}
    node = record(Node, row, capacity=capacity, reserve=reserve, ports=ports, gpu_drains=drains)
    return record(NodeRecord, row, node=node, worker_token=key)
