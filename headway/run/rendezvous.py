"""A gang on its nodes: where its ranks meet, and what each hears of the others."""

import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlsplit

from psutil import net_if_addrs

from headway.ledger.records import RunRecord
from headway.model.launch import Launch, filled, joined
from headway.model.run import GRANTED, Exit, ExitKind, RunState
from headway.policy.gang_end import SILENT_S, Rank, verdict, why_not_start, why_stop
from headway.settings import Settings
from headway.site import Site

_RANKS_EVERY_S = 1.0
_READY_EVERY_S = 0.25
_RAN_OUT = Exit(
    ExitKind.OUT_OF_MEMORY,
    None,
    "one of its processes was killed at the host memory limit; see its log",
)
_NOWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): asks for the default route, sends nothing


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of one attempt meet, and which of them this is."""

    gang_id: str
    attempt: int
    address: str
    """Of rank 0: its node's, or its container's on a network of gangs; empty until that runs."""
    port: int
    """There, theirs alone; 0 until it is known."""
    rank: int
    """0 for the one that leads."""
    nodes: int

    def environment(self, launch: Launch, gpus: int) -> dict[str, str]:
        """Variables by which the program finds its peers.

        `MASTER_ADDR` and `MASTER_PORT` are PyTorch's own. `torchrun` takes any
        of its options from `PET_…`, so that ``torchrun train.py`` needs none.
        Where a node runs one process only, that needs no `torchrun`: it is told
        its rank as `torchrun` would tell it.

        Args:
            launch: What it goes by.
            gpus: GPUs on each node.
        """
        numbers: dict[str, object] = {
            "HEADWAY_NODES": self.nodes,
            "HEADWAY_NODE_RANK": self.rank,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
        }
        if launch is Launch.TORCH:
            alone = {"RANK": self.rank, "WORLD_SIZE": self.nodes, "LOCAL_RANK": 0}
            numbers |= {
                **(alone if gpus <= 1 else {}),
                "PET_NNODES": self.nodes,
                "PET_NODE_RANK": self.rank,
                "PET_MASTER_ADDR": self.address,
                "PET_MASTER_PORT": self.port,
            }
        return {name: str(value) for name, value in numbers.items()}

    def command(self, launch: Launch, command: Sequence[str]) -> list[str]:
        """*command*, with rank and meeting place filled in where the program goes by nothing else.

        A node has one process of it, so its rank is the process's.
        """
        if launch is not Launch.NONE:
            return list(command)
        master = joined(self.address, self.port)
        numbers = {"rank": self.rank, "world_size": self.nodes, "local_rank": 0, "master": master}
        return filled(command, numbers)


def own_address(settings: Settings) -> str:
    """The address by which other nodes reach this one.

    That which the operator set; else the one this node speaks to the Prefect
    server from; on the server's own machine that of the default route.
    """
    if settings.address is not None:
        return settings.address
    server = urlsplit(settings.api_url).hostname or _NOWHERE
    for target in (server, _NOWHERE):
        found = _source_address(target)
        if found and not found.startswith("127.") and found != "::1":
            return found
    return "127.0.0.1"


def own_links(settings: Settings) -> dict[str, str]:
    """Variables by which NCCL and Gloo take the network where the others reach this node.

    For programs that see all of the node's: NCCL takes the first one that is up, Gloo the one that
    the machine's own name leads to, which often is the loopback.
    """
    address = own_address(settings)
    for name, addresses in net_if_addrs().items():
        if address in {each.address.partition("%")[0] for each in addresses}:
            # NCCL takes a name for the beginning of one, unless it is told otherwise.
            return {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
    return {}


def _source_address(target: str) -> str:
    try:
        family, kind, _, _, address = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with closing(socket.socket(family, kind)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def other_ranks(site: Site, meeting: Meeting) -> list[Rank]:
    """The ranks beside rank 0, as the ledger has them now; in few queries, however many."""
    ledger = site.ledger
    # What is held is read first: a rank that begins in between is then among the runs.
    found = {
        lease.gang_rank: Rank(lease.gang_rank, lease.node, False, False, None, 0.0)
        for lease in ledger.leases.untaken(meeting.gang_id)
    }
    runs = ledger.runs.ranks(meeting.gang_id, meeting.attempt)
    silences = _silences(site, [run for run in runs if run.exit is None])
    for run in runs:
        where, rank = run.node or "", run.gang_rank
        silence = silences.get(run.run_id, _NONE)
        found[rank] = Rank(rank, where, True, run.is_ready, run.exit, *silence)
    # Neither held nor begun: the janitor there dropped the lease while nobody renewed it.
    return [
        found.get(number, Rank(number, "a node that gave it up", False, False, None, 0.0))
        for number in range(1, meeting.nodes)
    ]


def wait_for_ranks(
    site: Site, meeting: Meeting, late: Callable[[Sequence[Rank]], None]
) -> Exit | None:
    """Let rank 0, which is ready, wait until all others are; why they do not start, else None.

    Args:
        site: Its node's.
        meeting: Its own.
        late: Told of those that are not ready, whenever these are others than before.
    """
    begun_s, told = site.clock.monotonic_s(), list[int]()
    while True:
        ranks = other_ranks(site, meeting)
        waiting = [rank for rank in ranks if not rank.ready]
        found = why_not_start(ranks, site.clock.monotonic_s() - begun_s)
        if found is not None or not waiting:
            return found
        if told != (told := [rank.number for rank in waiting]):
            late(waiting)
        site.clock.sleep(_READY_EVERY_S)


def wait_for_head(
    site: Site, meeting: Meeting, late: Callable[[Sequence[Rank]], None]
) -> Meeting | Exit:
    """Let another rank, which is ready, wait until rank 0 runs; where that is, or why to leave.

    Args:
        site: Its node's.
        meeting: Its own.
        late: Told of rank 0, once, where that is not ready yet.
    """
    told = False
    while True:
        gang = site.ledger.runs.get(meeting.gang_id)
        if gang.is_ready and gang.place and gang.attempt == meeting.attempt:
            address, _, port = gang.place.rpartition(":")
            return replace(meeting, address=address, port=int(port))
        found = why_leave(site, meeting)
        if found is not None:
            return found
        if not gang.is_ready and not told:
            late([Rank(0, gang.node or "", True, False, None, 0.0)])
            told = True
        site.clock.sleep(_READY_EVERY_S)


def wait_for_places(site: Site, meeting: Meeting) -> list[str] | Exit:
    """Where all parts are, by rank, once all of them run; or why this one has to end."""
    runs = site.ledger.runs
    while True:
        parts = [runs.get(meeting.gang_id), *runs.ranks(meeting.gang_id, meeting.attempt)]
        places = [part.place for part in parts if part.is_ready and part.place]
        if len(places) == meeting.nodes:
            return places
        found = why_end(site, meeting)
        if found is not None:
            return found
        site.clock.sleep(_READY_EVERY_S)


def why_end(site: Site, meeting: Meeting) -> Exit | None:
    """Why this rank has to stop for what became of its gang; None while it may go on."""
    if meeting.rank > 0:
        return why_leave(site, meeting)
    begun = site.ledger.runs.get(meeting.gang_id).started_at
    waited_s = (site.ledger.now() - begun).total_seconds() if begun else 0.0
    return why_stop(other_ranks(site, meeting), waited_s)


def end_of_gang(site: Site, meeting: Meeting | None, own: Exit, launch: Launch) -> Exit:
    """How the run ended of which this attempt ended as *own*: rank 0 waits for the others' ends.

    Not where its program started all others: those have ended by then, and their parts wait.
    """
    if meeting is None or meeting.rank > 0:
        return own
    if launch.starts_others and own.kind is ExitKind.OK:
        return own
    begun_s = site.clock.monotonic_s()
    while True:
        waited_s = site.clock.monotonic_s() - begun_s
        ranks = other_ranks(site, meeting)
        if launch.starts_others:
            ranks = _with_shortage(site, meeting, ranks)
        found = verdict(own, ranks, waited_s)
        if found is not None:
            return found
        site.clock.sleep(_RANKS_EVERY_S)


def _with_shortage(site: Site, meeting: Meeting, ranks: Sequence[Rank]) -> list[Rank]:
    """*ranks*, of which those have ended that ran out of memory in what they were asked to run.

    Their containers go on: who is killed there is a child of what serves rank 0.
    """
    asks = site.ledger.gang_asks.of(meeting.gang_id, meeting.attempt)
    short = {ask.to_rank for ask in asks if ask.ran_out}
    return [
        replace(each, exit=_RAN_OUT) if each.number in short and each.exit is None else each
        for each in ranks
    ]


def why_leave(site: Site, meeting: Meeting) -> Exit | None:
    """Why a rank beside rank 0 has to stop: its gang is over, or its head is lost."""
    gang = site.ledger.runs.get(meeting.gang_id)
    if gang.state is RunState.ENDED and gang.exit is not None and gang.exit.kind is ExitKind.OK:
        return Exit(ExitKind.OK, None, "stopped: rank 0 has ended well")
    granted = gang.state in GRANTED
    if not granted or gang.attempt != meeting.attempt:
        return Exit(ExitKind.CANCELLED, None, "stopped with its gang: see the run of rank 0")
    silent_s, _ = _silences(site, [gang]).get(gang.run_id, _NONE)
    if silent_s > SILENT_S:
        return Exit(
            ExitKind.INFRASTRUCTURE,
            None,
            f"node {gang.node}, where rank 0 runs, is lost: no sign of life for {silent_s:.0f} s",
        )
    return None


_NONE = 0.0, 0.0


def _silences(site: Site, runs: Sequence[RunRecord]) -> dict[str, tuple[float, float]]:
    """How long nothing was heard of each run that has a lease: `silent_s`, `quiet_s` of `Rank`."""
    if not runs:
        return {}
    ledger, ttl = site.ledger, timedelta(seconds=site.settings.lease_ttl_s)
    now = ledger.now()
    heard = {record.node.name: record.heartbeat_at for record in ledger.nodes.all()}
    expiries = ledger.leases.expiries([run.run_id for run in runs])
    found = {}
    for run in runs:
        if run.node in heard and run.run_id in expiries:
            signs = expiries[run.run_id], expiries[run.run_id] - ttl
            silent_s, quiet_s = ((now - max(heard[run.node], s)).total_seconds() for s in signs)
            found[run.run_id] = max(silent_s, 0.0), max(quiet_s, 0.0)
    return found
