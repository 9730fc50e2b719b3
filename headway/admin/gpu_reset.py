"""Takes a GPU that was drained back into service, once its agent has found it well."""

from typing import Any

from headway.admin.node_removal import unknown_node
from headway.errors import HeadwayError, InvalidInput
from headway.model.node import Node
from headway.site import Site
from headway.this_node import os_user

_AGENT_LOOKS_WITHIN_S = 30


class GpuStillSick(HeadwayError):
    """An operator said that a GPU was reset, and its agent does not agree, or has not looked."""

    gpu: str
    node: str
    why: str
    line = "{gpu} of node {node} takes no runs yet: {why}"


def gpu_was_reset(site: Site, name: str, which: str) -> dict[str, Any]:
    """Have the agent of node *name* judge anew the GPU *which*, by its number or uuid.

    Raises:
        InvalidInput: There is none such that is drained.
        GpuStillSick: It is not well, or the agent does not answer; that one looks when it does.
    """
    node = _node(site, name)
    drained = [gpu for gpu in node.capacity.gpus if gpu.uuid in node.gpu_drains]
    found = [gpu for gpu in drained if which in (gpu.uuid, str(gpu.index))]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in drained) or "none"
        raise InvalidInput("gpu", which, f"one of node {name} that is drained: {known}")
    (gpu,) = found
    site.ledger.nodes.gpu_was_reset(name, gpu.uuid, actor=os_user())
    why = "its agent has not answered; it looks as soon as it is at work"
    for _ in range(_AGENT_LOOKS_WITHIN_S):
        site.clock.sleep(1.0)
        drain = _node(site, name).gpu_drains.get(gpu.uuid)
        if drain is None:
            return {"node": name, "gpu": gpu.uuid, "index": gpu.index}
        if drain.reset_at is None:
            why = f"it still has {drain.told}"
            break
    raise GpuStillSick(f"gpu{gpu.index}", name, why)


def _node(site: Site, name: str) -> Node:
    record = site.ledger.nodes.get(name)
    if record is None:
        raise unknown_node(site, name)
    return record.node
