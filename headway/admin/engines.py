"""Bringing a cluster's scheduler into the site: its partitions become work pools."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from headway.admin.processes import start_follower
from headway.clock import Clock
from headway.engine import containers
from headway.engine.errors import EngineError
from headway.engine.kinds import SLURM
from headway.engine.login import is_by_login
from headway.engine.port import Cluster, Engine, Phase, Request
from headway.errors import InvalidInput
from headway.ledger.engines import EnginePoolRecord
from headway.model.engine import LEADS_TO, SAMPLE, EnginePool
from headway.model.node import NodeState
from headway.node.daemon import follower_daemon
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.scheduler.engine_jobs import open_engine
from headway.site import Site
from headway.units import MIB, MINUTE_S
from headway.waits import until

_LOOK_BYTES = 256 * MIB
_LOOK_S = 20.0
"""So long is waited for a machine of each pool to say what starts images there."""


def add_engine(
    site: Site, say: Callable[[str], None], kind: str = SLURM, said: Sequence[EnginePool] = ()
) -> tuple[Cluster, dict[str, str]]:
    """Make a work pool of each partition, or learn anew what the partitions have.

    Runs of these pools are submitted from this node from now on.

    Args:
        site: Where.
        say: Tells of it.
        kind: Which engine (`engine.kinds`).
        said: Where it answers, or its queues, as far as it cannot be asked.

    Returns:
        What it has; and by partition the work pool that stands for it.

    Raises:
        EngineAway: It does not answer here.
        InvalidInput: This user sees no partition, or another node is the submit host.
    """
    engine, settings = open_engine(site, kind, said), site.settings
    found = engine.inspect()
    if not found.pools:
        allowed = "ask the cluster's operators: this user sees no partition"
        raise InvalidInput("engine", kind, allowed)
    known, nodes = site.ledger.engines.pools(), site.ledger.nodes.all()
    taken, there = {each.node.pool for each in nodes}, {each.node.name for each in nodes}
    taken |= {name for name, each in known.items() if each.engine != kind}
    names = {pool.name: _name(pool, kind, taken) for pool in found.pools}
    for name in names.values():
        # One that was removed submits nothing any more.
        if name in known and known[name].node in there - {settings.node}:
            allowed = f"node {known[name].node} submits its runs: add it there"
            raise InvalidInput("engine", kind, allowed)
    before = {pool: known[name].has.containers for pool, name in names.items() if name in known}
    if not is_by_login(kind):  # else no member is asked for a job of theirs
        found = replace(found, pools=with_containers(engine, found.pools, site.clock, before))
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        for pool in found.pools:
            what = f"Partition {pool.name} of {engine.name} {found.version}"
            about = f"{what}, by submit host {settings.node}"
            server.have_pool(names[pool.name], like=settings.pool, about=about)
            server.offer_in(names[pool.name], SAMPLE)
    pools = [(names[pool.name], pool) for pool in found.pools]
    site.ledger.engines.keep(kind, settings.node, pools)
    say(_trust(kind, os.geteuid()))
    follower_daemon(settings).stop(signal.SIGTERM, 10.0)  # it goes by the pools of its start
    start_follower(settings, say)
    return found, names


def with_containers(
    engine: Engine,
    pools: Sequence[EnginePool],
    clock: Clock,
    known: Mapping[str, Mapping[str, str] | None],
) -> tuple[EnginePool, ...]:
    """*pools*, each with what starts images on the machine that a small job of it is given.

    Where none is free in time, or the pool takes no such job, it is what was *known*.
    """
    source = Path(containers.__file__).read_text()
    keys: dict[str, str] = {}
    there: dict[str, Mapping[str, str]] = {}

    def looked() -> bool:
        with suppress(EngineError):
            ended = {job.key for job in engine.jobs() if job.phase is Phase.ENDED}
            for pool, key in keys.items():
                if key in ended and pool not in there:
                    with suppress(OSError, ValueError):
                        there[pool] = json.loads(engine.log(key).read_text())
            return ended >= set(keys.values())
        return False

    try:
        for pool in pools:
            key = f"look-{token_hex(6)}"
            command = ("python3", "-c", source)
            asked = Request(
                key, "headway-look", pool.name, command, 1, _LOOK_BYTES, time_limit_s=MINUTE_S
            )
            with suppress(EngineError, OSError):
                engine.submit(asked)
                keys[pool.name] = key
        until(looked, clock, _LOOK_S, 0.5)
    finally:
        with suppress(EngineError, OSError):
            engine.cancel([(key, 0) for pool, key in keys.items() if pool not in there])
        for key in keys.values():
            with suppress(EngineError, OSError):
                engine.forget(key)
    return tuple(
        replace(pool, containers=there.get(pool.name, known.get(pool.name))) for pool in pools
    )


def lead_to_engine(site: Site, say: Callable[[str], None]) -> None:
    """Have all runs go to Slurm, and none to this machine: it is a submit host and no more.

    Raises:
        EngineAway: No Slurm answers here.
        InvalidInput: This user sees no partition, or another node is the submit host.
    """
    found, names = add_engine(site, say)
    settings = site.settings
    default = next((pool for pool in found.pools if pool.is_default), found.pools[0])
    # Noted first: the next registration of the deployment, as by an upgrade, goes by it.
    site.ledger.settings.keep(LEADS_TO, {"pool": names[default.name]})
    with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
        server.lead_to(names[default.name], SAMPLE)
    why = "it is the submit host of Slurm: its runs go there"
    site.ledger.nodes.set_state(settings.node, NodeState.DRAINING, why)
    say(f"runs go to Slurm; those that name no pool to {names[default.name]}")


def _trust(kind: str, uid: int) -> str:
    """As whom jobs go there, and so whose files they can read."""
    if is_by_login(kind):
        return (
            "each job goes to the cluster as its member's own login, which `engines.slurm.logins` "
            "of the member's team in the block headway-line/site names; who has none is refused"
        )
    root = "; it is root, which no such site should be" if uid == 0 else ""
    return (
        f"jobs of every member run on the cluster as the site's user (uid {uid}{root}), and can "
        "read its home: let in only people who trust each other"
    )


def _name(pool: EnginePool, kind: str, taken: set[str]) -> str:
    """Of the work pool that stands for it: its own, unless nodes or another engine have that."""
    return pool.name if pool.name not in taken else f"{kind}-{pool.name}"


def look_at(site: Site, kind: str, pools: Mapping[str, EnginePoolRecord]) -> tuple[bool, str]:
    """Whether the engine answers here, and has what the *pools* of this submit host stand for."""
    engine = open_engine(site, kind)
    found = engine.inspect()
    names = {pool.name for pool in found.pools}
    gone = sorted(name for name, each in pools.items() if each.has.name not in names)
    if gone:
        return False, f"{engine.name} has no partition any more for pool {', '.join(gone)}"
    down = sorted(pool.name for pool in found.pools if not pool.is_up)
    said = [f"{engine.name} {found.version}: pools {', '.join(sorted(pools))}"]
    said += [_trust(kind, os.geteuid())]
    said += [f"partitions that start nothing: {', '.join(down)}"] if down else []
    said += [f"images in {name}: {_starts_images(each.has)}" for name, each in pools.items()]
    return True, "; ".join([*said, *found.lacks])


def _starts_images(pool: EnginePool) -> str:
    """What starts them there."""
    if (known := pool.containers) is None:
        return "not known, since nobody could look: each job's own node does"
    runtime = containers.chosen(known)
    return f"by {runtime.program}" if runtime else f"none ({containers.none_of(known)})"
