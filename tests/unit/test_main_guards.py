"""Modules that are programs, too: what stands behind the call of `main` is not there for it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_stands_behind_the_call_of_main() -> None:
    found = []
    for folder in ("headway", "flows", "blocks", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            body = ast.parse(path.read_text()).body
            asks = [n for n in body if isinstance(n, ast.If) and "__name__" in ast.unparse(n.test)]
            found += [str(path) for each in asks if each is not body[-1]]
    assert found == []
