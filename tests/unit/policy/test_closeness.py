"""GPUs of one job close together, on a node of two sockets with four GPUs each."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.lease import Demand, Sharing
from headway.model.node import WITHOUT_NVLINK, Gpu
from headway.policy.admission import judge
from headway.policy.board import Board
from headway.policy.closeness import choose, closeness
from headway.policy.fit import Headroom
from headway.policy.room import Need, Occupant, Room
from tests.unit.policy.boards import ask

NAMES = "abcdefgh"


def distance(one: str, other: str) -> int:
    return 10 if (one in "abcd") == (other in "abcd") else 50


def distances(name: str) -> dict[str, int]:
    return {other: distance(name, other) for other in NAMES if other != name}


def rooms(names: str = NAMES, used: str = "") -> list[Room]:
    found = [Room(80, 1.0, 80, uuid=name, distances=distances(name)) for name in names]
    for room in found:
        if room.uuid in used:
            room.enter(Occupant(9.0, room.uuid, 0.0, 9.0, Need(30, 0.3)))
    return found


def chosen(count: int, names: str = NAMES, used: str = "") -> str:
    found = rooms(names, used)
    return "".join(sorted(found[at].uuid for at in choose(enumerate(found), count)))


@pytest.mark.parametrize(
    ("count", "idle", "expected"),
    [
        (2, "abcdefgh", "ab"),
        (4, "bcdefgh", "efgh"),  # the first socket has one in use
        (3, "adefg", "efg"),
        (2, "adefgh", "ad"),  # as close as others, and leaves the second socket whole
        (1, "adefgh", "a"),
        (1, "bcdh", "h"),
        (5, "abcdefgh", "abcde"),
        (4, "abefg", "aefg"),
    ],
)
def test_idle_gpus_of_one_run_are_as_close_as_can_be(count: int, idle: str, expected: str) -> None:
    assert chosen(count, idle) == expected


def test_one_gpu_is_filled_before_the_next() -> None:
    assert chosen(1, used="f") == "f"
    assert chosen(2, used="f") == "ef"  # beside the one that is used, its neighbour
    assert chosen(2, used="afg") == "fg"


def test_where_no_distance_is_known_the_fullest_come_first() -> None:
    found = [Room(80, 1.0, free, uuid=str(free)) for free in (60, 40, 50)]
    assert [found[at].free_bytes for at in choose(enumerate(found), 2)] == [40, 50]


@given(
    st.lists(st.sampled_from([0, 10, 40, 50, 110, 150]), min_size=28, max_size=28),
    st.integers(2, 7),
)
def test_no_other_set_is_closer(far: list[int], count: int) -> None:
    pairs = dict(zip(combinations(NAMES, 2), far, strict=True))
    apart = {name: {} for name in NAMES}
    for (one, other), each in pairs.items():
        apart[one][other] = apart[other][one] = each
    found = [Room(80, 1.0, 80, uuid=name, distances=apart[name]) for name in NAMES]
    taken = sorted(found[at].uuid for at in choose(enumerate(found), count))

    def total(names: object) -> int:
        return sum(pairs[pair] for pair in combinations(names, 2))

    assert total(taken) == min(total(names) for names in combinations(NAMES, count))


def test_of_many_gpus_those_around_one_are_taken() -> None:
    names = [f"{socket}{n}" for n in range(16) for socket in "xy"]
    far = {one: {o: 10 if o[0] == one[0] else 50 for o in names if o != one} for one in names}
    found = [Room(80, 1.0, 80, uuid=name, distances=far[name]) for name in names]
    taken = choose(enumerate(found), 16)  # 601 million sets
    assert len({found[at].uuid[0] for at in taken}) == 1


def test_plan_and_grant_choose_the_same() -> None:
    node = Headroom("node-0", Room(100, 64.0, 100), rooms("adefgh"))
    (place,) = Board([node]).place_now(ask("r", gpus=3, whole=True), 0.0)
    assert [node.gpus[at].uuid for at in place.gpus] == ["e", "f", "g"]
    grants = judge(Demand(1, 1.0, 3, sharing=Sharing.WHOLE), node)
    assert [grant.uuid for grant in grants.gpus] == ["e", "f", "g"]


@pytest.mark.parametrize(
    ("far", "told"),
    [
        (10, "joined by NVLink, behind the same PCIe switches"),
        (50, "joined by NVLink, across NUMA nodes"),
        (WITHOUT_NVLINK + 40, "without NVLink, on one NUMA node"),
        (WITHOUT_NVLINK + 30, "without NVLink, at one PCIe host bridge"),
        (0, "parts of one board"),
        (None, ""),
    ],
)
def test_how_close_they_are_is_told_by_the_farthest(far: int | None, told: str) -> None:
    known = {} if far is None else {"b": far}
    one = Gpu("a", 0, "H100", 1, distances={**known, "c": 0})
    gpus = [one, Gpu("b", 1, "H100", 1, distances={"c": 0}), Gpu("c", 2, "H100", 1)]
    assert closeness(gpus) == told
    assert closeness(gpus[:1]) == ""


def test_of_three_the_place_and_the_links_are_told_each_by_the_farthest() -> None:
    far = {("a", "b"): 50, ("a", "c"): 50, ("b", "c"): WITHOUT_NVLINK + 10}
    gpus = [
        Gpu(
            one,
            at,
            "H100",
            80,
            distances={
                other: far[min(one, other), max(one, other)] for other in "abc" if other != one
            },
        )
        for at, one in enumerate("abc")
    ]
    assert closeness(gpus) == "without NVLink, across NUMA nodes"
