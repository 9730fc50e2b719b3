"""Tests that a page of the documents names: do they exist?"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and name of every test that *text* names as ``tests/….py::test_…``."""
    return _TEST.findall(text)


def is_there(file: str, name: str) -> bool:
    """Whether *file* of the repository has a test of that *name*."""
    return name in _functions(file)


@cache
def _functions(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
