"""How runs stand, for those who follow them: read from the ledger once for all of them."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio

from headway.clock import Clock
from headway.errors import NodeSilent
from headway.ledger import Ledger
from headway.ledger.records import NodeRecord
from headway.model.run import RunState
from headway.model.run_file import StoredPart
from headway.node.shares import in_thread

_KNOWN_FOR_S = 1.0
_MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands, and where its attempts were."""

    run_id: str
    ended: bool
    attempt: int
    started: Mapping[int, str]
    """The node of each attempt whose container was started."""
    nodes: Mapping[str, NodeRecord]
    held: bool = False
    """Whether it holds a lease: a run that was cancelled has ended, and may write on a little."""
    stored: tuple[StoredPart, ...] = ()
    """What of it is in the site's store."""

    def is_over(self, attempt: int) -> bool:
        """Whether nothing more comes of *attempt*."""
        return (self.ended and not self.held) or self.attempt > attempt

    @property
    def newest_started(self) -> int | None:
        """The last attempt that was started."""
        return max(self.started, default=None)

    def stored_with(self, attempt: int) -> StoredPart | None:
        """The part of it in the store that has *attempt*: that of its node, as it was left last."""
        node = self.started.get(attempt)
        return next(
            (
                part
                for part in reversed(self.stored)
                if part.attempt >= attempt and self.started.get(part.attempt) == node
            ),
            None,
        )

    def place(self, attempt: int) -> NodeRecord | None:
        """The node that has what *attempt* left; None where it was not started.

        Raises:
            NodeSilent: An operator has removed the node.
        """
        name = self.started.get(attempt)
        if name is None:
            return None
        if name not in self.nodes:
            raise NodeSilent(name, "it was removed from the site")
        return self.nodes[name]


@dataclass
class _Known:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    read_s: float = float("-inf")
    standing: Standing | None = None


class Standings:
    """How runs stand, at most a second ago."""

    def __init__(self, ledger: Callable[[], Ledger], clock: Clock) -> None:
        """Read from *ledger*."""
        self._ledger = ledger
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def of(self, run_id: str) -> Standing:
        """How the run stands. Raises `RunUnknown`."""
        known = self._known.setdefault(run_id, _Known())
        self._known.move_to_end(run_id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        async with known.lock:
            if known.standing is None or self._clock.monotonic_s() > known.read_s + _KNOWN_FOR_S:
                known.standing = await in_thread(self._read, run_id)
                known.read_s = self._clock.monotonic_s()
            return known.standing

    def _read(self, run_id: str) -> Standing:
        ledger = self._ledger()
        record = ledger.runs.get(run_id)
        started = {
            each.attempt: each.node
            for each in ledger.attempts.of_run(run_id)
            if each.node is not None and each.started_at is not None
        }
        if record.node is not None and record.started_at is not None:
            started[record.attempt] = record.node
        nodes = {each.node.name: each for each in ledger.nodes.all()}
        ended = record.state is RunState.ENDED
        held = ledger.leases.of_run(run_id) is not None
        stored = tuple(each for each in ledger.stored.of_run(run_id) if each.is_there)
        return Standing(run_id, ended, record.attempt, started, nodes, held, stored)
