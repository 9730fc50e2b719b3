"""The tests that the pages of attacks, faults and security name for each row exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
ATTACKS, FAULTS = "docs/development/attacks.md", "docs/development/faults.md"
READERS = {"member", "team", "operator"}
"""Whom SECURITY.md promises something to."""


@cache
def functions(file: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((ROOT / file).read_text() if (ROOT / file).is_file() else "")
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def rows(page: str) -> list[list[str]]:
    """The cells of each row that a number or a reader begins."""
    lines = (ROOT / page).read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0].isdigit() or row[0] in READERS]


def test_no_row_is_missing() -> None:
    attacks, faults, promises = map(rows, (ATTACKS, FAULTS, "SECURITY.md"))
    assert [int(row[0]) for row in attacks] == list(range(1, max(len(attacks), 60) + 1))
    assert len({row[1] for row in attacks}) == len(attacks)
    assert [int(row[0]) for row in faults] == list(range(1, 55))
    assert {row[0] for row in promises} == READERS
    assert len(promises) > 20


@pytest.mark.parametrize("page", [ATTACKS, FAULTS, "SECURITY.md"])
def test_each_row_names_tests_that_exist(page: str) -> None:
    for row in rows(page):
        assert all(row), row
        assert (named := TEST.findall(" ".join(row))), row
        assert [f"{file}::{name}" for file, name in named if name not in functions(file)] == []


def test_a_fault_that_no_test_injects_says_so() -> None:
    for _, _, injected, tests, _ in rows(FAULTS):
        assert injected in {"real", "stub", "part", "none"}
        assert (injected == "none") == (tests == "no test")
