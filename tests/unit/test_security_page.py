"""SECURITY.md: each promise names the tests that hold it, and they exist."""

import pytest

from tests.support.named_tests import ROOT, is_there, named_tests

READERS = {"member", "team", "operator"}
"""Whom something is promised to."""


def promises() -> list[list[str]]:
    """The cells of every promise's row."""
    lines = (ROOT / "SECURITY.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] in READERS]


def test_something_is_promised_to_each() -> None:
    assert {row[0] for row in promises()} == READERS
    assert len(promises()) > 20


@pytest.mark.parametrize("row", promises(), ids=lambda row: row[1][:40])
def test_the_tests_of_a_promise_exist(row: list[str]) -> None:
    _, promise, tests = row
    assert promise
    assert named_tests(tests)
    assert [each for each in named_tests(tests) if not is_there(*each)] == []
