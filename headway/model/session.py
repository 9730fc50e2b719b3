"""A session, a run that serves a port: which ports are open, and what only the gateway knows.

Everything is derived from the job and the lease, so the ledger keeps nothing more for it.
"""

import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Any


def serves_port(job: Mapping[str, Any]) -> bool:
    """Whether the job, as the ledger keeps it, is a session with a port of its own."""
    session = job.get("session")
    return session is not None and not session.get("shell")


def needs_free_port(job: Mapping[str, Any]) -> bool:
    """Whether its port is any that is free on its node: it names none."""
    return serves_port(job) and job["session"].get("port") is None


def session_port(job: Mapping[str, Any], leased: Collection[int]) -> int | None:
    """The port that the session serves, of those that its lease has; None for no session."""
    if not serves_port(job):
        return None
    if not needs_free_port(job):
        return next((port for port in leased if port == job["session"]["port"]), None)
    return next((port for port in sorted(leased) if port not in job.get("ports", ())), None)


def open_ports(job: Mapping[str, Any], leased: Collection[int]) -> frozenset[int]:
    """The ports by which the run's program may be reached through the gateway.

    The port where the ranks of a gang meet is leased too, and is theirs alone.
    """
    own = session_port(job, leased)
    asked = frozenset(leased).intersection(job.get("ports", ()))
    return asked if own is None else asked | {own}


def session_path(run_id: str) -> str:
    """The path below which the gateway serves the session's pages."""
    return f"/{run_id}/"


def session_link(run_id: str) -> str:
    """The path at the gateway that leads to the session's pages."""
    return f"/v1/runs/{run_id}/session"


def session_secret(lease_token: str) -> str:
    """What the gateway shows the program with each request; others of its node do not know it.

    Made from the token of the lease, which says nothing about that token: the program
    must not get the token, by which the ledger is written.
    """
    return hmac.new(lease_token.encode(), b"headway-session", hashlib.sha256).hexdigest()
