"""The page of faults names every fault, and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = 46
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


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
    named = _TEST.findall(tests) + _TEST.findall(outcome)
    assert named
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
