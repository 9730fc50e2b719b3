"""What is evicted: as little as the order of use allows, and nothing in vain."""

from hypothesis import given
from hypothesis import strategies as st

from headway.model.staged import StagedSet
from headway.staging.budget import CacheSpace, beyond_share, victims

sizes = st.integers(0, 1000)


def unused(sizes_bytes: list[int]) -> list[StagedSet]:
    return [
        StagedSet(key=str(n), uri="u", size_bytes=size, sha256="s")
        for n, size in enumerate(sizes_bytes)
    ]


@given(
    budget=sizes,
    in_use=sizes,
    idle=st.lists(st.integers(1, 300), max_size=8),
    reserved=sizes,
    disk_free=st.integers(-1000, 2000),
    needed=sizes,
    written_frac=st.floats(0, 1),
)
def test_eviction_keeps_the_budget_and_the_order(
    *,
    budget: int,
    in_use: int,
    idle: list[int],
    reserved: int,
    disk_free: int,
    needed: int,
    written_frac: float,
) -> None:
    evictable = unused(idle)
    room = CacheSpace(budget, in_use + sum(idle), reserved, disk_free)
    to_write = needed - int(needed * written_frac)

    def fits(evicted: list[StagedSet]) -> bool:
        freed = sum(each.size_bytes for each in evicted)
        within = room.used_bytes - freed + reserved + needed <= budget
        return within and to_write <= disk_free + freed

    chosen = victims(room, evictable, needed, to_write)
    if isinstance(chosen, int):
        assert not fits(evictable)
        assert 0 <= chosen <= needed
    else:
        assert fits(chosen)
        assert chosen == evictable[: len(chosen)]
        assert not chosen or not fits(chosen[:-1])


def test_what_could_be_had_is_said() -> None:
    room = CacheSpace(budget_bytes=100, used_bytes=70, reserved_bytes=10, disk_free_bytes=1000)
    assert victims(room, unused([30]), 80, 80) == 50


def test_a_share_is_of_what_is_used_and_each_set_counts_once() -> None:
    held = {"a": 30, "b": 30}
    assert not beyond_share(held, "c", 15, 75)
    assert beyond_share(held, "c", 16, 75)
    assert not beyond_share(held, "a", 30, 75)
    assert beyond_share({}, "c", 76, 75)
