"""How the files of a data set are divided among nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.staging.shard import Part, divided, part_of, shard_of
from headway.staging.source import Source, SourceFile

SIZES = st.dictionaries(
    st.text("ab/c\udcff", min_size=1, max_size=4), st.none() | st.integers(0, 10**13), max_size=40
)


def files(sizes: dict[str, int | None]) -> list[SourceFile]:
    return [SourceFile(name, name, size) for name, size in sizes.items()]


def source(**sizes: int | None) -> Source:
    return Source("/data/set", True, tuple(files(sizes)), "as it was")


@given(SIZES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_file_is_in_one_part_and_parts_are_alike(sizes, parts, random) -> None:
    found = divided(files(sizes), parts)
    assert sorted(each.name for part in found for each in part) == sorted(sizes)
    bytes_of = [sum(each.size_bytes or 0 for each in part) for part in found]
    assert max(bytes_of) - min(bytes_of) <= max((size or 0 for size in sizes.values()), default=0)
    # Another node may list them in another order.
    shuffled = files(sizes)
    random.shuffle(shuffled)
    again = divided(shuffled, parts)
    assert [{each.name for each in part} for part in again] == [
        {each.name for each in part} for part in found
    ]


def test_files_of_unknown_size_are_shared_by_number() -> None:
    parts = divided(files(dict.fromkeys("abcde")), 2)
    assert [[each.name for each in part] for part in parts] == [["a", "c", "e"], ["b", "d"]]


def test_a_part_is_a_data_set_of_its_own() -> None:
    whole = source(a=5, b=3, c=3)
    first, second = (part_of(whole, Part(number, 2)) for number in (0, 1))
    assert [[each.name for each in one.files] for one in (first, second)] == [["a"], ["b", "c"]]
    assert (first.size_bytes, second.size_bytes) == (5, 6)
    assert len({whole.key(None), first.key(None), second.key(None)}) == 3
    assert part_of(whole, Part()) == whole
    told = shard_of(whole, Part(1, 2))
    assert (told.files, told.files_in_all) == (("b", "c"), 3)
    assert told.listing == shard_of(whole, Part(0, 2)).listing
    assert told.listing != shard_of(source(a=5, b=3, c=4), Part(1, 2)).listing


def test_what_cannot_be_divided_is_refused_with_its_numbers() -> None:
    for whole, said in [
        (source(a=5, b=0), "over 2 nodes .* it has 1 with data"),
        (Source("/data/x", False, (SourceFile("x", "x", 5),), "i"), "it is a single file"),
    ]:
        with pytest.raises(InvalidInput, match=f"dataset.shard: .*{said}"):
            part_of(whole, Part(0, 2))
