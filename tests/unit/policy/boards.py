"""Boards and asks for the tests of the policy."""

from hypothesis import strategies as st

from headway.policy.board import Board
from headway.policy.fit import Ask, Headroom
from headway.policy.order import VirtualTime
from headway.policy.promise import PoolTotals
from headway.policy.queue import AskT, Queue
from headway.policy.room import Need, Room
from headway.policy.settings import PolicySettings

MEMORY = 24


def board(nodes: int = 1, gpus: int = 1, *, limit: float = 1.0, host: int = 100) -> Board:
    return Board(
        [
            Headroom(
                f"node-{n}",
                Room(host, 64.0, host),
                [Room(MEMORY, limit, MEMORY, product="A100") for _ in range(gpus)],
            )
            for n in range(nodes)
        ]
    )


def ask(
    run_id: str,
    *,
    submitted_s: float = 0.0,
    gpus: int = 1,
    memory: int = MEMORY,
    load: float = 1.0,
    whole: bool = False,
    runtime_s: float = 100.0,
    **more: object,
) -> Ask:
    need = Need(MEMORY, 0.0, whole=True) if whole else Need(memory, load)
    return Ask(run_id, submitted_s, gpus, need, runtime_s, runtime_s, **more)  # type: ignore[arg-type]


def queue(
    *asks: AskT, settings: PolicySettings | None = None, gpus: int = 1, **knobs: int
) -> Queue[AskT]:
    """The queue that *asks* have joined when they were submitted, and in that order."""
    chosen = settings or PolicySettings(**knobs)
    line = Queue[AskT](chosen, PoolTotals(gpus=gpus), VirtualTime(chosen, gpus))
    for one in sorted(asks, key=lambda one: (one.submitted_s, one.run_id)):
        line.add(one, one.submitted_s)
    return line


@st.composite
def asks(draw: st.DrawFn, *, most: int = 12, gang: int = 2) -> list[Ask]:
    """Asks that fit a board of two nodes with two GPUs each."""
    found = []
    for at in range(draw(st.integers(1, most))):
        nodes = draw(st.integers(1, gang))
        whole = draw(st.booleans())
        found.append(
            ask(
                f"run{at:03d}",
                submitted_s=float(draw(st.integers(0, 50))),
                gpus=draw(st.integers(1, 2)),
                memory=draw(st.integers(1, MEMORY)),
                load=draw(st.integers(1, 10)) / 10,
                whole=whole,
                runtime_s=float(draw(st.integers(1, 200))),
                nodes=nodes,
                team=draw(st.sampled_from(["red", "blue"])),
                priority=draw(st.integers(0, 1)),
                promised_s=float(draw(st.integers(0, 200))),
            )
        )
    return found


def check(seen: Board) -> None:
    """Nothing on the board is above what there is."""
    for node in seen.nodes:
        for room in node.gpus:
            assert room.free_bytes >= 0
            assert sum(one.need.memory_bytes for one in room.occupants) <= room.whole_bytes
            assert sum(one.need.load for one in room.occupants) <= room.load_limit + 1e-6
            if any(one.need.whole for one in room.occupants):
                assert len(room.occupants) == 1
