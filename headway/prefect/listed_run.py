"""A run as Prefect's server lists it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headway.prefect.unreadable import REASON

FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})
"""Types of states of runs that have ended."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as Prefect knows it."""

    run_id: str
    name: str
    state_type: str
    """Prefect's type, such as SCHEDULED."""
    state_name: str
    """Prefect's name, such as AwaitingHeadroom."""
    message: str
    created_at: str
    parameters: Mapping[str, Any]
    state_at: datetime | None = None
    """Since when it is in this state, by the server's clock."""
    key: str = ""
    """Under which it was made; see `submit`."""


def unreadable(seen: Mapping[str, Any]) -> dict[str, Any]:
    """A run of which only id and state are known, as `listed_run` reads it."""
    state = {
        "type": seen["state_type"],
        "name": str(seen["state_type"]).title(),
        "message": REASON,
    }
    return {"id": seen["id"], "name": "unreadable", "state": state}


def listed_run(document: Mapping[str, Any]) -> ListedRun:
    """The run that a *document* of the server is about."""
    state = document.get("state") or {}
    at = state.get("timestamp")
    return ListedRun(
        run_id=document["id"],
        name=document["name"],
        state_type=state.get("type") or "",
        state_name=state.get("name") or "",
        message=state.get("message") or "",
        created_at=document.get("created") or "",
        parameters=document.get("parameters") or {},
        state_at=datetime.fromisoformat(at) if at else None,
        key=document.get("idempotency_key") or "",
    )
