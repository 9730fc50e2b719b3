"""One node as plain data (`views.answers`)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypedDict

from headway.estimate.physics import Tables
from headway.ledger.records import NodeRecord
from headway.model.gpu_health import GpuDrain, Sickness
from headway.model.lease import Lease
from headway.model.node import GpuReading, MemoryMeans, NodeState
from headway.model.staged import CacheUse
from headway.policy.headroom import gpu_bytes_of_runs, memory_means
from headway.policy.strangers import strangers
from headway.scheduler.snapshot import as_heard
from headway.site import Site
from headway.units import HOUR_S, MINUTE_S
from headway.views.answers import At
from headway.views.fields import iso_time, shaped


class RunOnGpu(TypedDict):
    """A run on a GPU."""

    run_id: str
    granted_bytes: int
    since: At


class StrangerShown(TypedDict):
    """A program on a GPU that is no run's."""

    pid: int
    user: str
    command: str
    memory_bytes: int | None
    since: At | None


class GpuShown(TypedDict):
    """A GPU of a node."""

    uuid: str
    index: int
    name: str
    memory_bytes: int
    memory_kept_by: MemoryMeans
    """What keeps a run within its grant; see docs/policy.md."""
    memory_kept_why: str
    """Why by nothing stronger."""
    promised_bytes: int
    runs: list[RunOnGpu]
    strangers: list[StrangerShown] | None
    """Null where they cannot be read."""
    used_bytes: int | None
    """By all programs, without the driver's own."""
    runs_used_bytes: int | None
    """By runs of this site."""
    utilisation_frac: float | None
    lost: str
    """Why it cannot be used, else empty."""
    drained: str
    """Why it takes no runs, else empty."""
    drained_kinds: list[Sickness]
    drained_since: At | None
    speed_from: str
    """`data sheet`, `data sheet of its nearest relative` or `unknown`."""


class NodeShown(TypedDict):
    """A node."""

    node: str
    pool: str
    state: NodeState
    """`lost`: not heard of for a minute, or being removed."""
    state_reason: str
    cpus: float
    cpus_promised: float
    host_memory_bytes: int
    host_reserve_bytes: int
    """Kept for the system."""
    host_promised_bytes: int
    host_used_bytes: int | None
    host_runs_used_bytes: int | None
    """By runs of this site."""
    gpus: list[GpuShown]
    gpu_error: str
    """Why its GPUs cannot be read, else empty."""
    cache: CacheUse
    """Its data sets, and how often a run found its own there."""
    runs: list[str]
    heartbeat_at: At


def node_shown(
    record: NodeRecord,
    now: datetime,
    leases: Iterable[Lease],
    caches: Mapping[str, CacheUse],
    tables: Tables,
) -> dict[str, Any]:
    """One node as `headway nodes --json` lists it.

    Args:
        record: The node.
        now: By the database's clock: a node that is silent is not ready, whatever its row says.
        leases: Of the whole site.
        caches: The nodes' data caches, by name.
        tables: What is known of GPUs, which says where that is from.
    """
    node, held = (
        as_heard(record, now),
        [lease for lease in leases if lease.node == record.node.name],
    )
    reading = record.reading
    used = {gpu.uuid: gpu for gpu in (reading.gpus or ())} if reading else {}
    lost = reading.lost_gpus if reading else {}
    return shaped(
        NodeShown,
        node,
        node=node.name,
        cpus=node.capacity.cpus,
        cpus_promised=sum(lease.cpus for lease in held),
        host_memory_bytes=node.capacity.host_memory_bytes,
        host_reserve_bytes=node.reserve.host_memory_bytes,
        host_promised_bytes=sum(lease.host_memory_bytes for lease in held),
        host_used_bytes=reading.host.used_bytes if reading else None,
        host_runs_used_bytes=sum(reading.run_host_bytes.values()) if reading else None,
        gpus=[
            shaped(
                GpuShown,
                gpu,
                memory_kept_by=memory_means(gpu, used.get(gpu.uuid)).value,
                memory_kept_why=gpu.kept_why,
                promised_bytes=sum(it["granted_bytes"] for it in _runs_on(gpu.uuid, held)),
                runs=_runs_on(gpu.uuid, held),
                strangers=_strangers_on(used.get(gpu.uuid)),
                used_bytes=used[gpu.uuid].program_bytes if gpu.uuid in used else None,
                runs_used_bytes=_used_by_runs(used[gpu.uuid]) if gpu.uuid in used else None,
                utilisation_frac=used[gpu.uuid].utilisation_frac if gpu.uuid in used else None,
                lost=lost.get(gpu.uuid, ""),
                **_drained(node.gpu_drains.get(gpu.uuid)),
                speed_from=tables.basis(gpu.name),
            )
            for gpu in node.capacity.gpus
        ],
        gpu_error=reading.gpu_error if reading else "",
        cache=asdict(caches.get(node.name, CacheUse())),
        runs=[lease.run_id for lease in held],
        heartbeat_at=iso_time(record.heartbeat_at),
    )


def _runs_on(uuid: str, held: Iterable[Lease]) -> list[dict[str, Any]]:
    return [
        shaped(RunOnGpu, lease, granted_bytes=grant.memory_bytes, since=iso_time(lease.granted_at))
        for lease in held
        for grant in lease.gpus
        if grant.uuid == uuid
    ]


def _strangers_on(seen: GpuReading | None) -> list[dict[str, Any]] | None:
    if seen is None:
        return None
    return [shaped(StrangerShown, each) for each in strangers(seen)]


def _drained(drain: GpuDrain | None) -> dict[str, Any]:
    if drain is None:
        return {"drained": "", "drained_kinds": [], "drained_since": None}
    kinds = [kind.value for kind in drain.why]
    return {
        "drained": drain.told,
        "drained_kinds": kinds,
        "drained_since": iso_time(drain.since),
    }


def _used_by_runs(seen: GpuReading) -> int | None:
    """Memory that runs of this site hold; None where the driver does not tell it of each."""
    if any(each.run_id and each.memory_bytes is None for each in seen.processes):
        return None
    return sum(gpu_bytes_of_runs(seen).values())


HOST = "host"
"""The key of the CPUs, beside the uuids of the GPUs."""


def load_document(site: Site) -> dict[str, Any]:
    """Of each node of *site*, the share of its CPUs' and of each GPU's time in use: last hour."""
    recent = site.ledger.telemetry.recent(period_s=int(MINUTE_S), last_s=HOUR_S)
    nodes: dict[str, dict[str, list[list[Any]]]] = {}
    for name, points in recent.items():
        of_node = nodes.setdefault(name, {})
        for each in points:
            of_node.setdefault(each.gpu or HOST, []).append([iso_time(each.at), each.busy_frac])
    return {"period_s": MINUTE_S, "nodes": nodes}
