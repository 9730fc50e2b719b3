"""The page of attacks has its sixty rows, and the tests that they name exist."""

import pytest

from tests.support.named_tests import ROOT, is_there, named_tests

ATTACKS = 60


def rows() -> list[list[str]]:
    """The cells of every attack's row."""
    lines = (ROOT / "docs/attacks.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0].isdigit()]


def test_they_are_numbered_and_enough() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, len(rows()) + 1))
    assert len(rows()) >= ATTACKS
    assert len({row[1] for row in rows()}) == len(rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_its_tests_exist(row: list[str]) -> None:
    _, attack, outcome, tests = row
    assert attack
    assert outcome
    assert named_tests(tests)
    assert [each for each in named_tests(tests) if not is_there(*each)] == []
