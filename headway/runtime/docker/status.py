"""What an engine says: of a container, as the runtime's port has it, and of what it does not do."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from headway.model.container_policy import ContainerPolicy, CpuRule
from headway.runtime.docker import creation
from headway.runtime.port import ContainerState, ContainerStatus

_STATES = {
    "created": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
}
_LATE = timedelta(seconds=0.3)
"""So long after an exit the engine is still asked for news of before; measured: milliseconds."""


def state_of(word: str) -> ContainerState:
    """The engine's word for what a container is doing."""
    return _STATES.get(word, ContainerState.EXITED)


def from_details(
    found: Mapping[str, Any], *, pids: tuple[int, ...], gang_networks: Sequence[str]
) -> ContainerStatus:
    """The status by what the engine knows of one container.

    Args:
        found: From the engine.
        pids: Its processes.
        gang_networks: Networks on which gangs meet; it is on one of them at most.
    """
    labels, state = found["Config"]["Labels"], found["State"]
    where = state_of(state["Status"])
    started_at, ended_at = moment(state["StartedAt"]), moment(state["FinishedAt"])
    if started_at and ended_at:
        # The engine notes a start late: a program of 2 ms ends before it.
        ended_at = max(started_at, ended_at)
    exited = where is ContainerState.EXITED
    return ContainerStatus(
        name=found["Name"].lstrip("/"),
        run_id=labels[creation.RUN],
        attempt=int(labels[creation.ATTEMPT]),
        state=where,
        exit_code=state["ExitCode"] if exited else None,
        oom_killed=bool(state["OOMKilled"]),
        started_at=started_at,
        ended_at=ended_at if exited else None,
        pids=pids,
        address=_address(found, gang_networks),
        error=state["Error"],
    )


def from_list(row: Mapping[str, Any]) -> ContainerStatus | None:
    """The status by the engine's list of containers, where it fails at the details of one.

    It is there, and so nothing of it may be given away. None for a container that has our
    label but was not made by headway.
    """
    labels = row.get("Labels") or {}
    run_id, attempt = labels.get(creation.RUN), str(labels.get(creation.ATTEMPT))
    if not run_id or not row.get("Names") or not attempt.isdecimal():
        return None
    name = row["Names"][0].lstrip("/")
    return ContainerStatus(name, run_id, int(attempt), state_of(str(row.get("State"))))


def _address(found: Mapping[str, Any], networks: Sequence[str]) -> str:
    joined = found.get("NetworkSettings", {}).get("Networks") or {}
    return next((str(joined[name]["IPAddress"]) for name in networks if name in joined), "")


def publishes(found: Mapping[str, Any], port: int) -> bool:
    """Whether 127.0.0.1:*port* leads to a container that runs, of which the engine *found* this."""
    published = (found["NetworkSettings"]["Ports"] or {}).values()
    return state_of(found["State"]["Status"]) is ContainerState.RUNNING and any(
        (each["HostIp"], each["HostPort"]) == ("127.0.0.1", str(port))
        for bound in published
        for each in bound or ()
    )


def own_folders(found: Mapping[str, Any]) -> tuple[Path, ...]:
    """The host's directories of a container's writable layer and volumes; those to be read."""
    layer = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
    volumes = [each["Source"] for each in found["Mounts"] if each["Type"] == "volume"]
    folders = (Path(folder) for folder in (layer, *volumes) if folder)
    return tuple(folder for folder in folders if os.access(folder, os.R_OK | os.X_OK))


def moment(text: str) -> datetime | None:
    """The engine's time; None for its zero, and for what is no time."""
    try:
        return None if text.startswith("0001-") else datetime.fromisoformat(text)
    except ValueError:  # not every engine writes a time that is not known in the same way
        return None


def was_killed(api: docker.APIClient, container: str, status: ContainerStatus) -> bool:
    """Whether the kernel killed something in a container for want of memory.

    The engine keeps it with the container's exit. Where a program ends the moment that one of its
    processes was killed, the news of the kill may come after that of the exit: the state then says
    no (measured: 1 of 160 under load), while the engine's events have it, for which this waits.
    """
    if status.oom_killed or status.started_at is None or status.ended_at is None:
        return status.oom_killed
    told = api.events(  # type: ignore[call-overload]  # parts of a second work, as text
        since=f"{status.started_at.timestamp():.6f}",
        until=f"{(status.ended_at + _LATE).timestamp():.6f}",
        filters={"container": container, "event": "oom"},
        decode=True,
    )
    return next(iter(told), None) is not None


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
