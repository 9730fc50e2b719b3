"""Which other nodes are asked for files, in which order, and when they are left."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from headway.model.staged import HeldSet
from headway.staging.errors import PeerFailed
from headway.staging.peers import (
    LEAST_BYTES_S,
    MOST_LEFT,
    WINDOW_S,
    NearCopies,
    Pace,
    checked,
    is_far,
    to_ask,
)
from headway.staging.shard import Part, keys_nearby, part_of
from headway.staging.source import Source, SourceFile
from headway.testing.clock import FakeClock
from headway.testing.staging import MemoryPeers

FILES = {"a": b"one", "b": b"two2"}


def held(node: str, key: str = "k", sha256: str = "f" * 64) -> HeldSet:
    return HeldSet(node, key, sha256)


@pytest.mark.parametrize(
    ("uri", "far"),
    [
        ("/data/set", False),
        ("file:///data/set", False),
        ("s3://bucket/set", True),
        ("https://host/set.csv", True),
    ],
)
def test_a_path_of_the_node_is_never_asked_of_another(uri: str, far: bool) -> None:
    assert is_far(uri) is far


def test_the_whole_of_what_is_wanted_comes_first_and_this_node_never() -> None:
    parts = [held("b", "part"), held("c", "part")]
    asked = to_ask([*parts, held("here"), held("c"), held("b")], "k", "here")
    assert {each.node for each in asked[:2]} == {"b", "c"}
    assert [each.key for each in asked] == ["k", "k", "part", "part"]


def test_nodes_that_begin_together_do_not_all_ask_the_same_one() -> None:
    having = [held(f"n{number}") for number in range(4)]
    first = {to_ask(having, "k", f"asks{number}")[0].node for number in range(40)}
    assert first == {each.node for each in having}


def test_where_two_nodes_differ_in_one_version_neither_is_asked() -> None:
    """The source has no mark by which its change is seen."""
    having = [held("b"), held("c", sha256="0" * 64), held("d", "part")]
    assert to_ask(having, "k", "here") == [held("d", "part")]


def test_a_part_may_be_had_from_any_cut_and_from_the_whole() -> None:
    files = tuple(SourceFile(name, name, 1) for name in "abcd")
    whole = Source("s3://x", True, files, "as it was")
    keys = keys_nearby(whole, "d" * 64, (1, 1), most_parts=4)
    wanted = [whole, part_of(whole, Part(1, 2)), part_of(whole, Part(3, 4))]
    for each in wanted:
        assert {each.key(None, (1, 1)), each.key("d" * 64, (1, 1))} <= set(keys)
        assert each.key(None, (2, 2)) not in keys  # another team's
        assert replace(each, identity="changed").key(None, (1, 1)) not in keys
    assert len(keys) == len(set(keys)) == 2 * (1 + 2 + 3 + 4)


def test_a_list_counts_only_with_the_hash_that_the_ledger_has() -> None:
    peers = MemoryPeers()
    right = peers.give("b", "k", FILES)
    listing = peers.listing(right)
    assert list(checked(listing, right, is_directory=True)) == ["a", "b"]
    line = f"{listing[0][2]}  a\n{listing[1][2]}"  # two lines of the list in one
    for wrong in ([], listing[:1], listing[::-1], [("b", 4, line)]):
        with pytest.raises(PeerFailed):
            checked(wrong, right, is_directory=True)


def test_of_a_single_file_nothing_but_its_own_hash_is_believed() -> None:
    one, other = (hashlib.sha256(data).hexdigest() for data in (b"one", b"other"))
    known = held("b", sha256=one)
    assert checked([("a", 3, one)], known, is_directory=False) == {"a": (3, one)}
    for wrong in ([("a", 3, one), ("b", 5, other)], [("x", 1, one), ("a", 5, other)], []):
        with pytest.raises(PeerFailed):
            checked(wrong, known, is_directory=False)


def test_a_name_that_cannot_be_is_a_wrong_list() -> None:
    with pytest.raises(PeerFailed):
        checked([("\ud800", 3, "0" * 64)], held("b"), is_directory=True)


def paced(rate_bytes_s: float, clock: FakeClock, pieces: int, size: int) -> Iterator[bytes]:
    for _ in range(pieces):
        clock.sleep(size / rate_bytes_s)
        yield b"0" * size


def test_a_node_is_left_when_it_is_slow_and_not_before() -> None:
    clock = FakeClock()
    pace, fast = Pace(clock), 4 * LEAST_BYTES_S
    for piece in pace.timed(paced(fast, clock, 80, 1 << 20), "b"):
        clock.sleep(1.0)  # this node's own disk is slow, which is not the other's fault
        assert piece
    begun_s = clock.monotonic_s()
    with pytest.raises(PeerFailed, match=r"it gave \d\.\d\d MiB/s, less than 4"):
        list(pace.timed(paced(1000.0, clock, 10_000, 100), "b"))
    assert clock.monotonic_s() - begun_s <= 2 * WINDOW_S + 1


def test_many_small_files_are_not_slow() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    for _ in range(1000):
        assert list(pace.timed(paced(50_000.0, clock, 1, 1000), "b"))


# --- one fetch ---


def fetch(
    peers: MemoryPeers, asked: list[HeldSet], names: str = "ab"
) -> tuple[dict[str, str | None], NearCopies]:
    near = NearCopies(peers, asked, FakeClock(), is_directory=True)

    def write(pieces: Iterable[bytes]) -> str:
        return hashlib.sha256(b"".join(pieces)).hexdigest()

    found = {
        name: near.copy(SourceFile(name, name, len(FILES.get(name, b""))), write) for name in names
    }
    return found, near


def test_each_file_comes_from_whoever_has_it_else_from_the_source() -> None:
    peers = MemoryPeers()
    asked = [peers.give("b", "k1", {"a": b"one"}), peers.give("c", "k2", {"b": b"two2"})]
    found, near = fetch(peers, asked, "abx")
    assert [bool(found[name]) for name in "abx"] == [True, True, False]
    assert near.came_bytes == {"b": 3, "c": 4}
    assert near.left == []


class Lies(MemoryPeers):
    """Node ``b`` sends something else, or more, or a list of its own."""

    def __init__(self, sent: bytes, listed: str = "") -> None:
        super().__init__()
        self.sent = sent
        self.listed = listed

    def pieces(self, held: HeldSet, name: str) -> Iterator[bytes]:
        yield from [self.sent] if held.node == "b" else super().pieces(held, name)

    def listing(self, held: HeldSet):
        found = super().listing(held)
        if held.node == "b" and self.listed:
            return [(name, size, self.listed) for name, size, _ in found]
        return found


@pytest.mark.parametrize(
    "peers", [Lies(b"ONE"), Lies(b"o"), Lies(b""), Lies(b"0" * 9), Lies(b"one", "0" * 64)]
)
def test_a_node_that_lies_is_not_believed_and_not_asked_again(peers: Lies) -> None:
    liar, honest = peers.give("b", "k", FILES), peers.give("c", "k", FILES)
    found, near = fetch(peers, [liar, honest])
    assert found == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert near.came_bytes == {"c": 7}
    assert [each.node for each in near.left] == ["b"]
    found, near = fetch(peers, [liar])
    assert found == {"a": None, "b": None}
    assert len(near.left) == 1


def test_a_site_whose_nodes_do_not_reach_each_other_waits_for_a_few_only() -> None:
    class Silent(MemoryPeers):
        def listing(self, held: HeldSet):
            raise PeerFailed(held.node, "timed out")

    peers = Silent()
    found, near = fetch(peers, [peers.give(f"n{number}", "k", FILES) for number in range(9)])
    assert found == {"a": None, "b": None}
    assert len(near.left) == MOST_LEFT


def test_a_file_of_another_size_than_the_source_says_is_not_taken() -> None:
    peers = MemoryPeers()
    found, near = fetch(peers, [peers.give("b", "k", {"a": b"older", "b": b"two2"})])
    assert found["a"] is None
    assert found["b"] is not None
    assert near.left == []
