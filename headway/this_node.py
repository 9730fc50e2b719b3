"""This machine as a node of the site: its name, what it has, its readings and its settings."""

import logging
import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headway.errors import HeadwayError, InvalidInput
from headway.home import node_identity, strip_set_ids
from headway.ledger import Ledger
from headway.model.access import BY_A_BLOCK
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.model.gpu_health import GpuDrain
from headway.model.job_types import OWNER
from headway.model.lease import Lease, Refuse
from headway.model.node import Capacity, Gpu, MemoryMeans, Node, NodePorts, NodeReading, PortUse
from headway.model.node_settings import NodeSettings
from headway.model.number_range import NumberRange
from headway.policy.gpu_health import ends_runs
from headway.policy.network import network_of
from headway.policy.settings import LINE
from headway.policy.team_uids import agree
from headway.runtime.errors import CeilingUnsafe
from headway.runtime.listening import listening_ports
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import POLICY, POLICY_SETTINGS, Site
from headway.telemetry.errors import TelemetryError
from headway.telemetry.host import boot_id
from headway.telemetry.reading import node_reading, with_owners

log = logging.getLogger(__name__)

_LOOKS_WITHIN_S = 10
"""A worker looks at its GPUs once a second, and reports them every five."""
OPERATORS_TEAM = "default"
"""Of whoever set the site up, and of runs that did not come in at the gateway."""


def os_user() -> str:
    """Who runs this process, by its uid: ``$USER`` is anybody's to set."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    return name if re.fullmatch(OWNER, name) else f"uid-{uid}"


def remove_container(site: Site, name: str, run_id: str) -> None:
    """Remove a container of a run, and the power over others from what it wrote."""
    site.runtime.remove(name)
    stripped = strip_set_ids(site.settings.runs_dir / Path(run_id).name)
    if stripped:
        log.warning("run %s left %d set-uid or set-gid files: stripped", run_id, stripped)


def adopt(site: Site, name: str, document: dict[str, Any]) -> bool:
    """Keep what an operator set under *name*, and let it take effect; whether it is new.

    Raises:
        ValueError: The document is not valid; what held before goes on to hold.
    """
    document = _checked(site, name, document)
    before = site.adopted.get(name, document)
    site.adopted[name] = document
    if not site.ledger.settings.put(name, document) and before == document:
        return False
    site.rebuild()
    join_site(site, again=True)
    return True


def keep(site: Site, name: str, document: dict[str, Any], actor: str = BY_A_BLOCK) -> bool:
    """Keep what *actor* set under *name* for those whom it concerns; whether it is new.

    Raises:
        ValueError: The document is not valid; what held before goes on to hold.
    """
    return site.ledger.settings.put(name, _checked(site, name, document), actor=actor)


def _checked(site: Site, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """`checked_setting`, of which the uids are noted."""
    document = checked_setting(site, name, document)
    if name == POLICY:
        _settle_uids(ContainerPolicy.model_validate(document), site.ledger.team_uids.settle)
    return document


def checked_setting(site: Site, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """*document* without what is not set. Raises `ValueError` where it may not be kept."""
    if name == LINE:
        document = {key: value for key, value in document.items() if value is not None}
        try:
            for team, limits in POLICY_SETTINGS.validate_python(document).teams.items():
                limits.check_quotas(f"teams.{team}")
        except InvalidInput as error:
            raise ValueError(str(error)) from error
    else:
        kind: type[BaseModel] = ContainerPolicy if name == POLICY else NodeSettings
        wanted = kind.model_validate(document)
        if isinstance(wanted, ContainerPolicy):
            _refuse_above(site, wanted)
            refused = network_of(wanted, 1, site.settings.api_access)
            if isinstance(refused, Refuse):
                raise ValueError(refused.allowed)
            _settle_uids(wanted, partial(agree, site.ledger.team_uids.all()))
    return document


def _refuse_above(site: Site, policy: ContainerPolicy) -> None:
    """Raise `ValueError` where *policy* allows more than the ceiling, or a team more than it."""
    try:
        site.within_ceiling(policy)
    except (CeilingUnsafe, InvalidInput) as error:
        raise ValueError(str(error)) from error


def _settle_uids(policy: ContainerPolicy, settle: Callable[[dict[str, NumberRange]], Any]) -> None:
    """*settle* the uids that *policy* names. Raises `ValueError` for what other files belong to."""
    try:
        settle({team: it.uids for team, it in policy.teams.items() if it.uids is not None})
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def check_name(ledger: Ledger, settings: Settings) -> None:
    """Raise where this home cannot be the node that it is called, in the pool that it names.

    Raises:
        NodeNameTaken: Another node has the name.
        InvalidInput: An engine starts the pool's runs.
    """
    ledger.nodes.check_name(
        settings.node,
        pool=settings.pool,
        identity=node_identity(settings.home),
        boot_id=boot_id(),
    )


def join_site(site: Site, *, again: bool = False) -> None:
    """Put this node into the ledger with what it has; takes over from a worker before.

    By what its GPUs keep runs to their memory is tried out, but where this process joins *again*:
    then it is as the ledger has it, but where a driver did not answer.

    Raises:
        NodeNameTaken: Another home has this node's name, and reports or holds leases.
    """
    for name in (f"node/{site.settings.node}", POLICY, LINE):  # what holds from now on
        site.adopted.setdefault(name, site.ledger.settings.get(name) or {})
    settings = site.node_settings
    known = site.ledger.nodes.get(site.settings.node)
    before = known.node.capacity.gpus if known is not None else ()
    if known is not None and known.boot_id == boot_id():
        # Nothing is taken out of a machine that runs: what is not there is lost.
        site.gpus.expect(before)
    try:
        gpus = tuple(settings.with_reserve(gpu) for gpu in _allowed(site, site.gpus.gpus()))
    except TelemetryError as error:
        log.warning("%s", error)
        gpus = before
    gpus = _with_means(site, gpus, before, again=again)
    for gone in {gpu.uuid for gpu in before} - {gpu.uuid for gpu in gpus}:
        log.warning("GPU %s is missing since the machine was restarted", gone)
    use = known.node.ports.use if known is not None else PortUse.PUBLISHED
    capacity = Capacity(site.host.cpus(), site.host.read().memory_bytes, gpus)
    node = Node(
        name=site.settings.node,
        pool=site.settings.pool,
        capacity=capacity,
        reserve=settings.reserve(capacity),
        price_per_hour=settings.price_per_hour,
        gpu_price_per_hour=settings.gpu_price_per_hour,
        ports=NodePorts(_port_use(site, use), settings.ports),
    )
    site.ledger.nodes.register(
        node,
        boot_id=boot_id(),
        worker_token=site.worker_token,
        identity=node_identity(site.settings.home),
    )


_PROBE = "probe"
"""In the place of a container's name."""


def _with_means(
    site: Site, gpus: tuple[Gpu, ...], before: Iterable[Gpu], *, again: bool
) -> tuple[Gpu, ...]:
    """*gpus* with by what they keep runs to their memory; *before* is what the ledger has.

    What cannot be tried now, as of a GPU that is lost, is as before, and is tried again.
    """
    known = {gpu.uuid: gpu for gpu in before}
    due = {
        gpu.uuid
        for gpu in gpus
        if not again or gpu.uuid not in known or known[gpu.uuid].tries_again
    }
    tried: Mapping[str, tuple[MemoryMeans, str]] = {}
    if due:
        try:
            tried = site.gpus.means(site.runtime.gpu_group(_PROBE))
            site.runtime.remove(_PROBE)
        except HeadwayError as error:
            log.warning("it could not be tested how runs are kept to their GPU memory: %s", error)

    def with_means(gpu: Gpu) -> Gpu:
        if gpu.uuid in due and gpu.uuid in tried:
            by, why = tried[gpu.uuid]
            return replace(gpu, kept_by=by, kept_why=why)
        old = known.get(gpu.uuid, _UNTRIED)
        return replace(gpu, kept_by=old.kept_by, kept_why=old.kept_why, tries_again=gpu.uuid in due)

    return tuple(map(with_means, gpus))


_UNTRIED = Gpu("", 0, "", 0, kept_by=MemoryMeans.WATCH, kept_why="nobody could try")


def try_means_again(site: Site) -> None:
    """Try out by what GPUs keep runs to their memory whose driver did not answer that before."""
    known = site.ledger.nodes.get(site.settings.node)
    if known is not None and any(gpu.tries_again for gpu in known.node.capacity.gpus):
        join_site(site, again=True)


def _port_use(site: Site, before: PortUse) -> PortUse:
    """How programs are reached at ports of theirs here; as *before* where nobody can say."""
    try:
        network = site.container_policy.network
        if site.runtime.kind is RuntimeKind.PROCESS or network is NetworkMode.HOST:
            return PortUse.BOUND
        if network is NetworkMode.NONE:
            return PortUse.NONE
        unguarded = network is NetworkMode.BRIDGE and site.runtime.guard_network()
    except HeadwayError as error:
        log.warning("whether containers may have a network is not known: %s", error)
        return before
    return PortUse.NONE if unguarded else PortUse.PUBLISHED


def note_ports(site: Site) -> None:
    """Keep how programs are reached at ports here, now that this has changed."""
    known = site.ledger.nodes.get(site.settings.node)
    if known is not None:
        ports = NodePorts(_port_use(site, known.node.ports.use), site.node_settings.ports)
        site.ledger.nodes.set_ports(known.node.name, site.worker_token, ports)


def _allowed(site: Site, gpus: Iterable[Gpu]) -> Iterable[Gpu]:
    """Those of *gpus* that the node's ceiling lets the site use; none where it is not trusted."""
    try:
        devices = site.ceiling.devices if site.ceiling is not None else None
    except CeilingUnsafe:
        return ()
    return [gpu for gpu in gpus if devices is None or gpu.uuid in devices]


def heartbeat(site: Site, reading: NodeReading) -> bool:
    """Keep the node's newest *reading*; False when another worker has the node now."""
    return site.ledger.nodes.heartbeat(site.settings.node, site.worker_token, reading)


def read_node(site: Site) -> NodeReading:
    """This node now, with what the containers of each run hold, as far as the engine tells."""
    reading = node_reading(site.gpus, site.host, site.clock)
    seen = with_owners(reading, *(owners(site) or ({}, {})), closed=site.why_closed())
    return replace(seen, busy_ports=tuple(sorted(listening_ports())))


def owners(site: Site) -> tuple[dict[int, str], dict[str, int]] | None:
    """The run of each process in a container, and what each run holds of the host's memory.

    None where the engine does not tell: its runs go on.
    """
    run_of_pid: dict[int, str] = {}
    held: dict[str, int] = {}
    try:
        running = [each for each in site.runtime.containers() if each.pids]
    except HeadwayError as error:
        log.debug("what runs hold of this node is not known: %s", error)
        return None
    for each in running:
        run_of_pid |= dict.fromkeys(each.pids, each.run_id)
        try:
            used_bytes = site.runtime.usage(each.name).host_used_bytes
        except HeadwayError as error:
            log.debug("what container %s holds is not known: %s", each.name, error)
            continue
        if used_bytes is not None:
            held[each.run_id] = held.get(each.run_id, 0) + used_bytes
    return run_of_pid, held


def pythons(site: Site) -> Mapping[str, str] | None:
    """See `NodeReading.pythons`."""
    try:
        return site.runtime.pythons(site.container_policy.base_images)
    except HeadwayError as error:
        log.debug("which base images are here is not known: %s", error)
        return None


def told_sick(lease: Lease, drains: Mapping[str, GpuDrain], *, ending: bool = False) -> str:
    """Those of *lease*'s GPUs that are among *drains*, with what each has; empty where none is.

    *ending*: only those on which nothing is to go on.
    """
    held = {grant.uuid for grant in lease.gpus}
    sick = [uuid for uuid in drains if not ending or ends_runs(drains[uuid].why)]
    return ", ".join(f"{uuid}: {drains[uuid].told}" for uuid in sorted(held.intersection(sick)))


def sick_gpus(site: Site, lease: Lease, *, since: datetime | None = None) -> str:
    """The same by the ledger; with *since*, waits a while at most.

    Until the node's worker has looked after this time: by then it has drained whatever had made a
    program end.
    """
    tries = 0
    nodes, node = site.ledger.nodes, site.settings.node
    while True:
        # The reading first: what was found sick by then is drained.
        record = None if since is None else nodes.get(node)
        told = told_sick(lease, nodes.gpu_drains(node))
        read_at = record.reading.at if record is not None and record.reading else None
        if told or since is None or tries == _LOOKS_WITHIN_S or (read_at and read_at > since):
            return told
        tries += 1
        site.clock.sleep(1.0)


def lost_here(site: Site) -> Mapping[str, str]:
    """GPUs of this node that fell off the bus, by uuid, with the cause; read now.

    By the worker's last reading where they cannot be read.
    """
    record = site.ledger.nodes.get(site.settings.node)
    if record is not None:
        site.gpus.expect(record.node.capacity.gpus)
    try:
        site.gpus.read()
    except TelemetryError:
        return record.reading.lost_gpus if record is not None and record.reading else {}
    return site.gpus.lost()
