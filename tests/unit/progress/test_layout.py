"""Numbers cut at known places: the same as numbers read one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.progress.bars import MAX_BARS, Bars
from headway.progress.layout import MAX_SHAPES, Layout, Places, shape_of, shapes_of
from headway.progress.metrics import numbers_in
from headway.progress.parser import LogParser


def layout(line: str, *, from_zero: bool = False, **counts: tuple[int, int]) -> Layout:
    return Layout(line, Places(counts, numbers_in(line, 0), from_zero=from_zero))


@pytest.mark.parametrize("digits", ["007", "000", "123"])
def test_numbers_are_read_however_they_are_padded(digits: str) -> None:
    reader = layout("100 loss=1.5 n=5", step=(0, 3))
    seen = reader.read(f"{digits} loss=0.5 n=7")
    assert (seen.step, seen.metrics) == (int(digits), {"loss": 0.5, "n": 7.0})
    assert all(type(value) is float for value in seen.metrics.values())
    assert reader.read("042 loss=2.5 n=8").step == 42  # and so the next one


@pytest.mark.parametrize("number", [".5", "5.", "+5", "-5", "5e3", "007.5", "1" * 30])
def test_numbers_are_read_however_they_are_spelled(number: str) -> None:
    line = f"loss={number}"
    assert layout(line).read(line).metrics == {"loss": float(number)}


def test_infinite_numbers_are_left_out() -> None:
    reader = layout("a=1e100 b=0.5")
    assert reader.read("a=1e999 b=0.5").metrics == {"b": 0.5}
    assert reader.read("a=1e300 b=0.5").metrics == {"a": 1e300, "b": 0.5}


def test_epochs_done_are_a_float_also_when_whole() -> None:
    seen = layout("10 epoch 3", step=(0, 2), epoch_done=(9, 10)).read("20 epoch 4")
    assert (seen.step, seen.epoch_done, type(seen.epoch_done)) == (20, 4.0, float)


def test_an_iteration_from_zero_is_counted_from_one() -> None:
    assert layout("[0]", from_zero=True, iteration=(1, 2)).read("[7]").iteration == 8


def test_digits_of_names_are_read_anew() -> None:
    reader = layout("acc100=0.5 loss=0.5")
    for k in (100, 105, 999):
        assert reader.read(f"acc{k}=0.5 loss=0.1").metrics == {f"acc{k}": 0.5, "loss": 0.1}


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=20), max_size=5))
@settings(max_examples=100, deadline=None)
def test_shapes_of_lines_are_those_of_each(lines: list[str]) -> None:
    assert shapes_of(lines) == [shape_of(line) for line in lines]


def word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def test_what_a_parser_remembers_of_shapes_is_bounded() -> None:
    parser = LogParser()
    parser.feed(b'{"headway": {"iteration": 1}}\n', 0.0)  # nothing better can follow
    for number in range(3 * MAX_SHAPES):
        parser.feed(b"%s\n" % word(number).encode(), 0.0)
    assert 0 < len(parser._settled) <= MAX_SHAPES


def test_what_is_remembered_of_bars_is_bounded() -> None:
    bars = Bars()
    for number in range(max(3 * MAX_BARS, MAX_SHAPES + 100)):
        line = f"loss {word(number)}:  50%|##  | 5/10 [00:05<00:05, 1.0it/s]"
        bars(line, shape_of(line))
    assert len(bars._bars) <= MAX_BARS
    assert len(bars._shapes) <= MAX_SHAPES
