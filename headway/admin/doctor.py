"""`headway doctor`: is everything here that a site needs, and what to do if not."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headway.admin.database.own import looked_at
from headway.admin.engines import look_at
from headway.admin.processes import gateway_answers
from headway.admin.told import told_otherwise
from headway.credentials import noted_gateway
from headway.errors import HeadwayError, LedgerError, SiteRefused
from headway.gateway.certificate import RENEW, fitting
from headway.home import disk_of
from headway.model.container_policy import UIDS_OF_TEAMS
from headway.model.node import Gpu
from headway.node import daemon as daemons
from headway.node.daemon import Daemon
from headway.pinning import LOOPBACK
from headway.prefect.client import PrefectServer
from headway.runtime.port import RuntimeKind
from headway.settings import Settings
from headway.site import Site
from headway.telemetry.errors import GpuLost
from headway.this_node import lost_here
from headway.units import GIB, format_size

_SOON = timedelta(days=30)
NEEDS_LEDGER = "unknown while the ledger cannot be read: fix that first"


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    ok: bool
    found: str


def examine(site: Site, server: PrefectServer) -> list[Finding]:
    """Look at everything; never raises."""
    return list(_findings(site, server))


def _findings(site: Site, server: PrefectServer) -> Iterator[Finding]:
    yield _try("disk", lambda: _disk(site.settings.home))
    yield _try("database", lambda: looked_at(site.settings))
    ledger = _try("ledger", lambda: (True, f"{len(site.ledger.nodes.all())} node(s)"))
    yield ledger
    healthy = server.is_healthy()
    advice = f"no answer at {server.api_url}; run `headway up`"
    yield Finding("Prefect server", healthy, server.api_url if healthy else advice)
    if healthy:
        yield _try("auth string", lambda: _auth(server))
    if site.settings.gateway_host not in LOOPBACK:
        yield _try("certificate", lambda: _certificate(site))
    if told := told_otherwise(site.settings):
        advice = "run `headway up`, or this with the settings that the site was started with"
        yield Finding(
            "settings", ok=False, found=f"other than what runs has: {', '.join(told)}; {advice}"
        )
    yield _try("gateway", lambda: _gateway(site.settings))
    yield _process("worker of this node", daemons.worker_daemon(site.settings), "not running")
    if ledger.ok:
        yield _try("scheduler", lambda: _scheduler(site))
        yield from _engines(site)
    gone = "not running: leases expire while their containers go on"
    yield _process("guard of this node", daemons.guard_daemon(site.settings), gone)
    yield _supervisor(site)
    if ledger.ok:
        yield (runtime := _try("container runtime", lambda: _runtime(site)))
        if runtime.ok:
            yield _try("base images", lambda: _base_images(site))
            yield _try("way outside", lambda: _outside(site))
    else:
        yield Finding("container runtime", ok=False, found=NEEDS_LEDGER)
    yield _try("ceiling", lambda: _ceiling(site))
    if ledger.ok:
        yield _try("teams", lambda: _teams(site))
        for notice in site.ledger.notices.behind():
            since = f"does not take ends of runs, since {notice.made_at:%Y-%m-%d %H:%M} UTC"
            advice = "correct the block in Prefect, or its server"
            yield Finding(notice.block, ok=False, found=f"{since}: {notice.error}; {advice}")
    yield _try("GPUs", lambda: _gpus(site))


def _certificate(site: Site) -> tuple[bool, str]:
    """Whether the gateway's own certificate holds, and will for a while."""
    now = site.clock.now()
    own = fitting(site.settings, now)
    if own is None:
        return True, "none of the site's own"
    until = f"until {own.expires_at:%Y-%m-%d}"
    if own.expires_at < now + _SOON:
        return False, f"it holds {until}: {RENEW}"
    return True, f"for {', '.join(sorted(own.names))}, {until}"


def _gateway(settings: Settings) -> tuple[bool, str]:
    """Whether commands about runs, typed on this machine, find the site's gateway."""
    place = noted_gateway(settings)
    if place is not None and not (settings.is_guest or settings.token_file.exists()):
        return False, f"{settings.token_file} is lost: `headway up` makes another one"
    if place is not None:
        advice = f"no answer at {place.url}: no command about runs works; run `headway up`"
        answers = gateway_answers(settings)
        return answers, place.url if answers else f"{advice} on the gateway's machine"
    if settings.has_joined:
        return True, "it is on the machine of the site's server, and listens only there"
    return False, "none has been started here: no command about runs works; run `headway up`"


def _scheduler(site: Site) -> tuple[bool, str]:
    """Who leads this node's pool."""
    pool, leader = site.settings.pool, site.ledger.leaders.of(site.settings.pool)
    if leader is not None and leader.left_s > 0:
        return True, f"of pool {pool}: on node {leader.node}, in term {leader.term.number}"
    return False, f"nobody plans for pool {pool}, so nothing new starts; run `headway up`"


def _engines(site: Site) -> Iterator[Finding]:
    """The engines to which runs are handed from here, and what follows them."""
    pools = site.ledger.engines.pools()
    here = {name: each for name, each in pools.items() if each.node == site.settings.node}
    if here:
        for kind in sorted({each.engine for each in here.values()}):
            own = {name: each for name, each in here.items() if each.engine == kind}
            yield _try(kind.capitalize(), partial(look_at, site, kind, own))
        gone = "not running: no run is handed to the cluster, and no end is noticed"
        yield _process("follower of this node", daemons.follower_daemon(site.settings), gone)


def _process(what: str, daemon: Daemon, gone: str) -> Finding:
    """Whether *daemon* runs and does something; *gone* is what it means if it does not run."""
    process, frozen = daemon.process(), daemon.frozen()
    if process is None:
        return Finding(what, ok=False, found=f"{gone}; run `headway up`")
    if frozen:
        advice = "run `headway up`, which starts another one in its place"
        return Finding(what, ok=False, found=f"it does nothing: {frozen}; {advice}")
    return Finding(what, ok=True, found=f"pid {process.pid}")


def _supervisor(site: Site) -> Finding:
    """What brings the others back, where `headway up` has started them."""
    daemon, wanted = (
        daemons.supervisor_daemon(site.settings),
        daemons.supervisor_note(site.settings).exists(),
    )
    if wanted or daemon.process() is not None:
        return _process(
            "supervisor", daemon, "not running: a process that dies is not started again"
        )
    why = "none; `headway up` starts one. It is not needed where systemd runs this site"
    return Finding("supervisor", ok=True, found=why)


def _try(what: str, look: Callable[[], tuple[bool, str]]) -> Finding:
    """Look; what fails is one finding, and the other checks go on."""
    try:
        return Finding(what, *look())
    except (HeadwayError, OSError) as error:
        return Finding(what, ok=False, found=str(error))


def _auth(server: PrefectServer) -> tuple[bool, str]:
    if not server.accepts():
        raise SiteRefused(server.api_url, "or it lets in everybody; `headway up` fixes that")
    return True, "the server asks for one, and accepts this one"


def _runtime(site: Site) -> tuple[bool, str]:
    runtime = site.runtime
    runtime.containers()
    weak = " ".join(runtime.weaknesses())
    if runtime.kind is RuntimeKind.PROCESS:
        return True, f"process ({site.chosen.why_no_engine}). {weak}"
    return True, f"{runtime.kind.value}. {weak}" if weak else runtime.kind.value


def _base_images(site: Site) -> tuple[bool, str]:
    """Whether jobs that name a Python in the place of an image find one here, or get one."""
    named = site.container_policy.base_images
    if there := site.runtime.pythons(named):
        return True, ", ".join(image or f"this node's Python {p}" for p, image in there.items())
    if not named:
        return True, "none named: each job names an image"
    newest = list(named.values())[-1]
    if (why := site.runtime.why_no_image(newest)) == "":
        return True, f"none here yet; {newest} is at its registry"
    advice = "pull or load one, or name your own in base_images of headway-container-policy/site"
    return False, (
        f"none is here of {', '.join(named.values())}, which jobs start in that name no image, and "
        f"{newest} cannot be had: {why or 'no answer from its registry'}; {advice}"
    )


def _outside(site: Site) -> tuple[bool, str]:
    """Whether containers reach indexes and the like as programs of this shell do."""
    lacks = site.container_policy.outside.lacks(os.environ)
    if not lacks:
        return True, "containers are given all that this shell has for it"
    advice = "set outside of headway-container-policy/site if they need it"
    return True, f"containers are not given {', '.join(lacks)} of this shell; {advice}"


def _teams(site: Site) -> tuple[bool, str]:
    """As whom their programs run, and whether this node's engine can have these users."""
    if site.settings.container_user is not None or os.geteuid() != 0:
        user = site.settings.container_user or f"{os.geteuid()}:{os.getegid()}"
        return True, f"programs of all teams are {user}: each can read what the others keep"
    ranges = site.ledger.team_uids.all()
    text = f"{len(ranges)} with uids of their own"
    if site.runtime.kind is not RuntimeKind.DOCKER:
        return True, text
    from headway.runtime.docker.containers import DockerRuntime  # noqa: PLC0415 - 0.2 s of imports

    remap = site.runtime.engine.remap if isinstance(site.runtime, DockerRuntime) else None
    if remap is None:
        return True, text
    out = [f"{team} ({uids})" for team, uids in ranges.items() if not remap.uids.holds(uids)]
    if not out and remap.uids.holds(site.container_policy.uids or UIDS_OF_TEAMS):
        return True, f"{text}, within {remap.uids}, to which the engine remaps users"
    why = f"outside are {', '.join(out)}" if out else "new teams get uids outside of it"
    return False, (
        f"the engine remaps users to {remap.uids}, and {why}: no container of theirs can be "
        "made. Set uids in the block headway-container-policy/site, or more in /etc/subuid"
    )


def _ceiling(site: Site) -> tuple[bool, str]:
    """Whether the bounds of this node can be trusted, and the blocks keep within them."""
    ceiling = site.ceiling
    if why := site.why_closed():
        return False, f"this node starts nothing: {why}"
    return True, "none: blocks may set anything" if ceiling is None else ceiling.source


def _gpus(site: Site) -> tuple[bool, str]:
    gpus = site.gpus.gpus()
    site.gpus.read()
    with suppress(LedgerError):  # it knows which GPUs there were; its own check says what is wrong
        for uuid, cause in lost_here(site).items():
            raise GpuLost(uuid, cause)
    if not gpus:
        return True, "none on this node: it takes CPU jobs"
    kept: dict[str, str] = {}
    with suppress(LedgerError):  # where this node's agent has noted what it has tried
        node = site.ledger.nodes.get(site.settings.node)
        kept = {gpu.uuid: _kept(gpu) for gpu in node.node.capacity.gpus} if node else {}
    return True, ", ".join(
        f"{gpu.name} {format_size(gpu.memory_bytes)} (speed: {site.tables.basis(gpu.name)}"
        f"{kept.get(gpu.uuid, '')})"
        for gpu in gpus
    )


def _kept(gpu: Gpu) -> str:
    """By what runs that share it are kept to their memory."""
    why = f", since {gpu.kept_why}" if gpu.kept_why else ""
    return f"; memory of runs kept by: {gpu.kept_by.value}{why}"


def _disk(home: Path) -> tuple[bool, str]:
    there = next(each for each in (home, *home.parents) if each.exists())
    if not os.access(there, os.W_OK):
        return False, f"{there} cannot be written to, so nothing can be kept there: fix that first"
    enough = shutil.disk_usage(there).free > GIB
    more = "" if enough else "; `headway prune` removes the folders of finished runs"
    return enough, f"{disk_of(home)}{more}"
