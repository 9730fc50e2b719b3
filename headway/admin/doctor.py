"""`headway doctor`: is everything here that a site needs, and what to do if not."""

import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headway.admin.database.own import looked_at
from headway.errors import (
    GpuLost,
    HeadwayError,
    LedgerError,
    RuntimeFailure,
    SiteRefused,
    SiteUnreachable,
    TelemetryError,
)
from headway.node.daemon import (
    guard_daemon,
    supervisor_daemon,
    supervisor_note,
    worker_daemon,
)
from headway.prefect.client import PrefectServer
from headway.runtime.port import RuntimeKind
from headway.site import Site
from headway.this_node import lost_here
from headway.units import GIB, format_size


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    ok: bool
    found: str


def examine(site: Site, server: PrefectServer) -> list[Finding]:
    """Look at everything; never raises."""
    return list(_findings(site, server))


def _findings(site: Site, server: PrefectServer) -> Iterator[Finding]:
    yield Finding("database", *looked_at(site.settings))
    yield _try("ledger", lambda: f"{len(site.ledger.nodes.all())} node(s)", LedgerError)
    healthy = server.is_healthy()
    advice = f"no answer at {server.api_url}; run `headway up`"
    yield Finding("Prefect server", healthy, server.api_url if healthy else advice)
    if healthy:
        yield _try("auth string", lambda: _auth(server), SiteUnreachable)
    process = worker_daemon(site.settings).process()
    yield Finding(
        "worker of this node",
        process is not None,
        f"pid {process.pid}" if process is not None else "not running; run `headway up`",
    )
    guard = guard_daemon(site.settings).process()
    yield Finding(
        "guard of this node",
        guard is not None,
        f"pid {guard.pid}"
        if guard is not None
        else "not running: leases expire while their containers go on; run `headway up`",
    )
    yield _supervisor(site)
    yield _try("container runtime", lambda: _runtime(site), RuntimeFailure)
    yield _try("GPUs", lambda: _gpus(site), TelemetryError)
    free = shutil.disk_usage(site.settings.home).free
    more = "" if free > GIB else "; `headway prune` removes the folders of finished runs"
    found = f"{format_size(free)} free below {site.settings.home}{more}"
    yield Finding("disk", free > GIB, found)


def _supervisor(site: Site) -> Finding:
    """What brings the others back, where `headway up` has started them."""
    process = supervisor_daemon(site.settings).process()
    if process is not None:
        return Finding("supervisor", ok=True, found=f"pid {process.pid}")
    if supervisor_note(site.settings).exists():
        why = "not running: nothing that dies is started again; run `headway up`"
        return Finding("supervisor", ok=False, found=why)
    why = "none: `headway up` starts one; systemd, where it keeps this site, does its work"
    return Finding("supervisor", ok=True, found=why)


def _try(what: str, look: Callable[[], str], kind: type[HeadwayError]) -> Finding:
    try:
        return Finding(what, ok=True, found=look())
    except kind as error:
        return Finding(what, ok=False, found=str(error))


def _auth(server: PrefectServer) -> str:
    if not server.accepts():
        raise SiteRefused(server.api_url, "or it lets in everybody; `headway up` mends that")
    return "asked for, and this one is accepted"


def _runtime(site: Site) -> str:
    runtime = site.runtime
    runtime.containers()
    weak = " ".join(runtime.weaknesses())
    if runtime.kind is RuntimeKind.PROCESS:
        return f"process (no container engine answers). {weak}"
    return f"{runtime.kind.value}. {weak}" if weak else runtime.kind.value


def _gpus(site: Site) -> str:
    gpus = site.gpus.gpus()
    site.gpus.read()
    for uuid, cause in lost_here(site).items():
        raise GpuLost(uuid, cause)
    if not gpus:
        return "none on this node: it takes CPU jobs"
    return ", ".join(f"{gpu.name} {format_size(gpu.memory_bytes)}" for gpu in gpus)
