"""Does a run fit on a node now? The one answer that plan, admission and reasons share.

What is short has a name, a `Shortfall`; `policy.shortfall` makes the sentence of it.
"""

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any, Self

from headway.model.lease import ANY_PORT, Demand, Sharing
from headway.model.node import PortUse, is_of_type
from headway.model.run import Span
from headway.policy.room import NOTHING, ROUNDING, Need, Room
from headway.policy.settings import PolicySettings

_END_OF_TIME_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""No date lies much beyond."""
_UNSURE = 2.0
"""An upper quantile of what was said wrongly is so many times its median at least."""
_Z90 = NormalDist().inv_cdf(0.9)


def moment(time_s: float) -> datetime:
    """A time in seconds as a date; the last one for all that lies behind it."""
    return datetime.fromtimestamp(min(time_s, _END_OF_TIME_S), UTC)


@dataclass(slots=True, eq=False)
class Ask:
    """What a run asks of the nodes: its demand, ready for deciding.

    A run over several nodes asks for the same on each of them.
    """

    run_id: str
    submitted_s: float
    gpus: int
    """On each node."""
    gpu: Need
    """Of each GPU."""
    median_s: float
    """Predicted runtime, median."""
    high_s: float
    """Predicted runtime, upper quantile."""
    limit_s: float = math.inf
    """Its time limit: it is ended then."""
    host: Need = NOTHING
    nodes: int = 1
    """Above 1: a gang, which starts on all of them or not at all."""
    node: str = ""
    """The only node it may run on; empty for any."""
    gpu_type: str = ""
    """Words of the GPU's product name; empty for any."""
    ports: frozenset[int] = frozenset()
    """As its program has them; `ANY_PORT` for one that it is told."""
    disk_bytes: int = 0
    team: str = ""
    user: str = ""
    """Whose it is in its team; empty where nobody has said."""
    priority: int = 0
    """Larger goes first."""
    tag: float | None = None
    """Its place in the order: see `policy.order`. None until it has one."""
    overrun_work_s: float = 0.0
    """How much of `mean_work_s` its owner's runs have shown and its estimate hides: it counts
    towards its place in the order, but is none of its `tag`, which is kept."""
    promised_s: float | None = None
    """By when it is promised to start: see `policy.promise`. None until it may start."""
    larger: tuple[Self, ...] = ()
    """The same run at the larger sizes that it may have: see `policy.sizing`."""
    home: str = ""
    """The node that has its checkpoint; where it goes if that has room. Empty for none."""

    @property
    def mean_s(self) -> float:
        """Predicted runtime, mean: that of a log-normal one with this median and upper quantile.

        It is no more than the time limit, or than the upper quantile where there is none. Work is
        summed up by means: few long runs are most of it, and a median does not see them.
        """
        sd = math.log(self.high_s / self.median_s) / _Z90
        most_s = self.high_s if math.isinf(self.limit_s) else max(self.limit_s, self.median_s)
        return min(self.median_s * math.exp(sd * sd / 2), most_s)

    @property
    def mean_work_s(self) -> float:
        """Predicted GPU-seconds, mean; a run without GPUs counts as one."""
        return self.mean_s * max(1, self.gpus) * self.nodes

    def lengthened(self, times: float) -> None:
        """Take it to last *times* as long as is said of it, within its time limit."""
        before_s, most_s = self.mean_work_s, max(self.limit_s, self.median_s)
        spread = max(self.high_s / self.median_s, _UNSURE)
        self.median_s = min(self.median_s * times, most_s)
        self.high_s = self.median_s * spread
        self.overrun_work_s += self.mean_work_s - before_s

    @property
    def share(self) -> float:
        """GPUs it takes of the site; a run that shares one takes its part of it."""
        each = 1.0 if self.gpu.whole else self.gpu.load
        return self.gpus * self.nodes * each


@dataclass(slots=True, eq=False, kw_only=True)
class WaitingRun(Ask):
    """One run in the queue: what it asks, and what is said of it."""

    demand: Demand
    """On each node."""
    queue: str = ""
    """Its work queue."""
    predicted_high_s: float | None = None
    """Upper quantile of its runtime; None when nothing is known, then `high_s` is an assumption."""
    lasts: Span | None = None
    """How long it is expected to run, for what people are told; None when nothing is known."""
    name: str = ""
    """What people call it."""

    @property
    def promised_at(self) -> datetime | None:
        """By when it is promised to start."""
        return None if self.promised_s is None else moment(self.promised_s)

    @classmethod
    def of(
        cls,
        run_id: str,
        demand: Demand,
        submitted_at: datetime,
        *,
        settings: PolicySettings,
        median_s: float | None = None,
        high_s: float | None = None,
        **more: Any,
    ) -> "WaitingRun":
        """A run that waits.

        Args:
            run_id: The run.
            demand: On each node.
            submitted_at: Aware.
            settings: Of what is taken where nothing is known.
            median_s: Predicted runtime; None when nothing is known.
            high_s: Its upper quantile.
            more: Other fields, such as its team.
        """
        # An empty GPU takes anybody: a limit below one run's own utilisation would starve it.
        load = min(demand.gpu_utilisation_frac, settings.utilisation_limit)
        whole = demand.sharing is Sharing.WHOLE
        median_known_s = settings.unknown_runtime_s if median_s is None else median_s
        return cls(
            run_id=run_id,
            submitted_s=submitted_at.timestamp(),
            demand=demand,
            gpus=demand.gpus,
            gpu=Need(max(demand.gpu_memory_bytes, 1), load, whole) if demand.gpus else NOTHING,
            host=Need(demand.host_memory_bytes, demand.cpus),
            gpu_type=demand.gpu_type,
            ports=frozenset(demand.ports),
            disk_bytes=demand.disk_bytes,
            median_s=max(median_known_s, 1.0),
            high_s=max(median_known_s if high_s is None else high_s, median_known_s, 1.0),
            predicted_high_s=high_s,
            **more,
        )


def one_port(port: int) -> Room:
    """A port of a node, which one run at a time can have."""
    return Room(1, 0.0, 1, index=port, is_gpu=False)


class Shortfall(enum.Enum):
    """What a node has too little of for a run, in the order in which it is said."""

    CLOSED = enum.auto()
    """It takes no new runs, or not this one."""
    DISK = enum.auto()
    HOST_MEMORY = enum.auto()
    GPUS = enum.auto()
    """Too few with the memory and the utilisation left."""
    PORTS = enum.auto()
    CPUS = enum.auto()


@dataclass(slots=True)
class Headroom:
    """What may still be promised on one node, by its host and its GPUs; the reserve is taken off.

    Negative after a run has outgrown its lease.
    """

    name: str
    host: Room
    gpus: list[Room]
    ports: dict[int, Room] = field(default_factory=dict)
    """Each port that runs ask for or have, and at `ANY_PORT` those that may be given to any."""
    port_use: PortUse = PortUse.BOUND
    disk_bytes: float = math.inf
    """May still be promised. When some of it comes free is not predicted."""
    closed: str = ""
    """Why it takes no new runs (drained, lost, unreadable); empty when it does."""
    gpu_error: str = ""
    """Why its GPUs cannot be used now; then it has none here."""
    lost_gpus: tuple[str, ...] = ()
    """GPUs that fell off the bus, in words: ``gpu1 lost: …``; they are not among `gpus`."""
    strangers: tuple[str, ...] = ()
    """GPUs of which programs that are no run's have a part: ``gpu1 in use by …``."""
    utilisation_limit: float = 1.0
    """Runs share a GPU while their utilisations add up to at most this."""

    def copy(self) -> "Headroom":
        """The same rooms, to try something out."""
        gpus = [room.copy() for room in self.gpus]
        ports = {port: room.copy() for port, room in self.ports.items()}
        return replace(self, host=self.host.copy(), gpus=gpus, ports=ports)

    def shortfalls(self, ask: Ask) -> Iterator[Shortfall]:
        """What *ask* lacks here now, promises aside; nothing where it fits."""
        if not self.takes(ask):
            yield Shortfall.CLOSED
        if ask.disk_bytes > self.disk_bytes:
            yield Shortfall.DISK
        # A job of a replay needs nothing of the host, which a run that outgrew its lease leaves.
        if ask.host.memory_bytes and ask.host.memory_bytes > self.host.free_bytes:
            yield Shortfall.HOST_MEMORY
        if ask.gpus and self.fitting_gpus(ask) < ask.gpus:
            yield Shortfall.GPUS
        if not all(room.fits_now(need) for room, need in self.port_rooms(ask)):
            yield Shortfall.PORTS
        if ask.host.load and self.host.load + ask.host.load > self.host.load_limit + ROUNDING:
            yield Shortfall.CPUS

    def fits(self, ask: Ask) -> bool:
        """Does *ask* fit here now, promises aside?"""
        return next(self.shortfalls(ask), None) is None

    def admits(self, ask: Ask) -> bool:
        """May *ask* come to fit here, as far as can be predicted?"""
        return self.takes(ask) and ask.disk_bytes <= self.disk_bytes

    def takes(self, ask: Ask) -> bool:
        """Is it open for *ask*?"""
        return not self.closed and ask.node in ("", self.name) and self.reaches(ask)

    def reaches(self, ask: Ask) -> bool:
        """Would the program be reached at the ports that it has?"""
        return not ask.ports or ask.nodes > 1 or self.port_use is not PortUse.NONE

    def could_hold(self, ask: Ask) -> bool:
        """Would *ask* have the memory, CPUs and GPUs here if the node were empty?"""
        large = sum(room.whole_bytes >= ask.gpu.memory_bytes for _, room in self.suitable(ask))
        host = self.host
        enough = host.whole_bytes >= ask.host.memory_bytes and host.load_limit >= ask.host.load
        return enough and large >= ask.gpus

    def rooms_for(self, ask: Ask, gpus: Iterable[int]) -> list[tuple[Room, Need]]:
        """The rooms that *ask* takes here with *gpus*, by position, and what of each."""
        taken = [(self.gpus[at], self.gpus[at].taken_by(ask.gpu)) for at in gpus]
        rooms = [*taken, *self.port_rooms(ask)]
        return rooms if ask.host == NOTHING else [(self.host, ask.host), *rooms]

    def port_rooms(self, ask: Ask) -> list[tuple[Room, Need]]:
        """The ports of the node that *ask* takes, as rooms, and how many of each."""
        if not ask.ports:
            return []
        # The parts of a gang reach each other on networks where nothing is published.
        if self.port_use is PortUse.PUBLISHED and ask.nodes == 1:
            return [(self.port_room(ANY_PORT), Need(len(ask.ports), 0.0))]
        return [(self.port_room(port), Need(1, 0.0)) for port in ask.ports if port != ANY_PORT]

    def port_room(self, port: int) -> Room:
        """One port of the node."""
        return self.ports.setdefault(port, one_port(port))

    @property
    def rooms(self) -> list[Room]:
        """All that runs may be in here."""
        return [self.host, *self.gpus, *self.ports.values()]

    def fitting_gpus(self, ask: Ask) -> int:
        """How many GPUs have room for *ask* now."""
        return sum(room.fits_now(ask.gpu) for _, room in self.suitable(ask))

    def suitable(self, ask: Ask) -> Iterable[tuple[int, Room]]:
        """GPUs of the type that *ask* wants, with their positions."""
        if not ask.gpu_type:
            return enumerate(self.gpus)
        return [
            (at, room)
            for at, room in enumerate(self.gpus)
            if is_of_type(ask.gpu_type, room.product)
        ]
