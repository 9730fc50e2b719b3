"""The page of faults names every fault, and tests that exist."""

import pytest

from tests.support.named_tests import ROOT, is_there, named_tests

FAULTS = 55


def rows() -> list[list[str]]:
    """The cells of every fault's row."""
    lines = (ROOT / "docs/faults.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0].isdigit()]


def test_every_fault_has_its_row() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, FAULTS + 1))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_its_tests_exist_or_it_says_that_there_is_none(row: list[str]) -> None:
    _, _, injected, tests, outcome = row
    assert injected in {"real", "stub", "part", "none"}
    assert (injected == "none") == (tests == "no test")
    assert outcome
    named = named_tests(tests) + named_tests(outcome)
    assert named
    assert [each for each in named if not is_there(*each)] == []
