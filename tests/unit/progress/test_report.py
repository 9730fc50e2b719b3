"""The helper prints what the parser reads, and never fails a training program."""

import ast
import io
import sys
from pathlib import Path

import pytest

from headway.progress import report
from headway.progress.parser import LogParser


class Scalar:
    """As NumPy's scalars and one-element tensors behave."""

    def __float__(self) -> float:
        return 0.25


def test_what_is_reported_is_read() -> None:
    out = io.StringIO()
    report(10, total=100, epoch=0.5, metrics={"loss": Scalar(), "bad": float("nan")}, file=out)  # type: ignore[dict-item]
    (point,) = LogParser().feed(out.getvalue().encode(), 3.0)
    assert (point.t_s, point.iteration, point.epoch, point.total) == (3.0, 10, 0.5, 100)
    assert dict(point.metrics) == {"loss": 0.25, "bad.nan": 1.0}


@pytest.mark.parametrize("value", [None, float("inf"), "much", object()])
def test_what_is_no_number_is_left_out(value: object) -> None:
    out = io.StringIO()
    report(value, metrics={"loss": value}, file=out)  # type: ignore[arg-type, dict-item]
    assert out.getvalue() == '{"headway": {}}\n'
    assert LogParser().feed(out.getvalue().encode(), 0.0) == []


def test_the_file_works_alone_in_a_container() -> None:
    """Copied into an image without headway it still runs: the standard library is all it needs."""
    source = Path(sys.modules["headway.progress.report"].__file__ or "").read_text()
    modules = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
