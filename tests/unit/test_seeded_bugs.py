"""The seeded bugs fit the code as it is."""

import ast
from pathlib import Path

import pytest

from tests.seeded_bugs.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]


def _tests_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_can_be_put_in_and_its_tests_exist(bug: Bug) -> None:
    assert (ROOT / bug.file).read_text().count(bug.old) == 1
    for name in bug.tests:
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert not test or test.partition("[")[0] in _tests_of(ROOT / file), name


def test_there_are_enough_and_no_two_of_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
