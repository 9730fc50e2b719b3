"""Numbers cut at known places: the same as numbers read one by one."""

import pytest

from headway.progress.bars import MAX_BARS, Bars
from headway.progress.metrics import numbers_in
from headway.progress.places import MAX_SHAPE_CHARS, MAX_SHAPES, Places, by_shape, shape_of
from headway.progress.rows import PatternReader, Row


def places(line: str, **counts: tuple[int, int]) -> Places:
    return Places({name: slice(*at) for name, at in counts.items()}, numbers_in(shape_of(line)))


@pytest.mark.parametrize("digits", ["007", "000", "123"])
def test_numbers_are_read_however_they_are_padded(digits: str) -> None:
    reader = places("100 loss=1.5 n=5", step=(0, 3))
    seen = reader.read(f"{digits} loss=0.5 n=7")
    assert (seen.step, seen.metrics) == (int(digits), {"loss": 0.5, "n": 7.0})
    assert all(type(value) is float for value in seen.metrics.values())
    assert reader.read("042 loss=2.5 n=8").step == 42  # and so the next one


@pytest.mark.parametrize("number", [".5", "5.", "+5", "-5", "5e3", "007.5", "1" * 30])
def test_numbers_are_read_however_they_are_spelled(number: str) -> None:
    line = f"loss={number}"
    assert places(line).read(line).metrics == {"loss": float(number)}


def test_infinite_numbers_are_left_out() -> None:
    reader = places("a=1e100 b=0.5")
    assert reader.read("a=1e999 b=0.5").metrics == {"b": 0.5}
    assert reader.read("a=1e300 b=0.5").metrics == {"a": 1e300, "b": 0.5}


def test_epochs_done_are_a_float_also_when_whole() -> None:
    seen = places("10 epoch 3", step=(0, 2), epoch_done=(9, 10)).read("20 epoch 4")
    assert (seen.step, seen.epoch_done, type(seen.epoch_done)) == (20, 4.0, float)


def test_an_iteration_from_zero_is_counted_from_one() -> None:
    reader = PatternReader([Row(r"\[%iteration%\]", from_zero=True)])
    seen = reader("[7]", shape_of("[7]"))
    assert seen is not None
    assert seen.iteration == 8


def test_digits_of_names_are_read_anew() -> None:
    reader = places("acc100=0.5 loss=0.5")
    for k in (100, 105, 999):
        assert reader.read(f"acc{k}=0.5 loss=0.1").metrics == {f"acc{k}": 0.5, "loss": 0.1}


def word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def test_what_is_remembered_of_shapes_is_bounded() -> None:
    asked: list[str] = []
    find = by_shape(asked.append)
    shapes = [word(number) for number in range(3 * MAX_SHAPES)]
    for shape in (*shapes, shapes[-1]):
        find(shape)
    assert asked == shapes  # the last is remembered
    find(shapes[0])
    assert asked == [*shapes, shapes[0]]  # the first is forgotten


def test_what_is_remembered_of_a_long_line_is_bounded() -> None:
    assert shape_of("7" * 10_000) == "0" * MAX_SHAPE_CHARS


def test_what_is_remembered_of_bars_is_bounded() -> None:
    bars = Bars()
    for number in range(3 * MAX_BARS):
        line = f"loss {word(number)}:  50%|##  | 5/10 [00:05<00:05, 1.0it/s]"
        bars(line, shape_of(line))
    assert len(bars._bars) <= MAX_BARS
