"""A run's program is kept to its grants of shared GPUs from before its start on."""

import logging

from headway.errors import GrantNotKept
from headway.model.lease import Basis, Lease, Sharing
from headway.model.node import MemoryMeans
from headway.policy.over_grant import most_bytes
from headway.run.here import NodeAttempt
from headway.runtime.port import ContainerState
from headway.telemetry.errors import LimitUntaken, TelemetryError
from headway.units import MIB, format_size

log = logging.getLogger(__name__)


def limit_gpus(attempt: NodeAttempt, lease: Lease) -> None:
    """Have the driver keep the container of *attempt*, which has not started, to *lease*'s grants.

    Of GPUs that its node has said to do so. What headway has only guessed is no limit: there the
    run is watched, as on other GPUs. A gang asks before its parts meet, and so before the container
    is made: what is not kept then costs it no attempt.

    Raises:
        GrantNotKept: A limit did not take. The node says from now on that it watches each GPU of
            which that is so; until its agent tries again, where the driver gave no answer.
    """
    site, runtime = attempt.site, attempt.site.runtime
    shared = {each.uuid: each for each in lease.gpus if each.sharing is Sharing.SHARED}
    record = site.ledger.nodes.get(lease.node) if shared else None
    untaken: dict[str, str] = {}
    for gpu in record.node.capacity.gpus if record is not None else ():
        if gpu.uuid not in shared or gpu.kept_by is not MemoryMeans.DRIVER_LIMIT:
            continue
        status, demand = runtime.inspect(attempt.container), attempt.record.demand
        if status is not None and status.state is not ContainerState.CREATED:
            return  # it goes on under what it was started under
        if demand is not None and demand.gpu_memory_basis is Basis.PRIOR:
            log.info("its memory of %s was guessed: it is watched, and not limited", gpu.uuid)
            continue
        bytes_ = most_bytes(gpu, shared[gpu.uuid].memory_bytes) // MIB * MIB
        try:
            group = runtime.gpu_group(attempt.container)
            if group is None:
                raise LimitUntaken(
                    gpu.uuid, format_size(bytes_), "its processes are in no control group"
                )
            site.gpus.limit(gpu.uuid, group, bytes_)
        except TelemetryError as error:
            untaken[gpu.uuid], is_refused = str(error), isinstance(error, LimitUntaken)
            site.ledger.nodes.watch_alone(
                lease.node, gpu.uuid, f"at a run's start: {error}", tries_again=not is_refused
            )
        else:
            log.info("the driver keeps it to %s of %s", format_size(bytes_), gpu.uuid)
    if untaken:
        runtime.remove(attempt.container)  # the run's next lease may be for other GPUs
        raise GrantNotKept(", ".join(untaken), lease.node, "; ".join(untaken.values()))
