"""What an engine says of a container, read as the runtime's port has it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.runtime.docker import creation
from headway.runtime.port import ContainerState, ContainerStatus

_STATES = {
    "created": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
}


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
        lent=creation.LENT in labels,
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


def moment(text: str) -> datetime | None:
    """The engine's time; None for its zero, and for what is no time."""
    try:
        return None if text.startswith("0001-") else datetime.fromisoformat(text)
    except ValueError:  # not every engine writes a time that is not known in the same way
        return None
