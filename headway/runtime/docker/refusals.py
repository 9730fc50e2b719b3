"""What an engine does not do, in words for its operator."""

import os
import re
from collections.abc import Mapping
from typing import Any

from docker.errors import APIError

from headway.model.container_policy import ContainerPolicy, CpuRule


def weaknesses(
    info: Mapping[str, Any], policy: ContainerPolicy, *, has_own_group: bool
) -> tuple[str, ...]:
    """What an engine that says *info* of itself cannot enforce or measure, one sentence each."""
    limits_swap, limits_pids = info.get("SwapLimit"), info.get("PidsLimit")
    limits_cpus = policy.cpus is CpuRule.GUARANTEE or info.get("CpuCfsQuota")
    checks = {
        "This kernel does not limit swap: a container may swap past its memory.": limits_swap,
        "This engine does not limit the number of processes.": limits_pids,
        "This engine does not limit CPU time.": limits_cpus,
        "This engine does not share CPU time by weight.": info.get("CPUShares"),
        "headway is not root: what a container writes outside its mounts does not count against "
        "resources.disk.": os.geteuid() == 0,
        "The memory peak is read while a container runs; one in its last second may be "
        "missed.": has_own_group,
    }
    return tuple(words for words, is_well in checks.items() if not is_well)


def why_not_started(name: str, error: APIError) -> str:
    """Why container *name* could not be started, and the next step where one is known."""
    cause = str(error.explanation or error)
    if "could not select device driver" in cause:  # the engine gives nothing but text
        cause += (
            ". The engine has no NVIDIA runtime: install nvidia-container-toolkit, run "
            "`nvidia-ctk runtime configure` and restart the engine"
        )
    elif "port is already allocated" in cause or "address already in use" in cause:
        cause += ". Another program of this node has the port: give the job another one"
    elif re.search("network .* not found", cause):
        cause += (
            ". Make it on this engine, or change gang_network of the block "
            "headway-container-policy/site"
        )
    return f"container {name} could not be started: {cause}"
