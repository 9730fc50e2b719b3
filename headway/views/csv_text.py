"""Rows as CSV, in which no name is a formula to a program that opens it."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """*rows*, of which the first has the headings."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_no_formula(cell) for cell in row] for row in rows
    )
    return text.getvalue()


def _no_formula(value: object) -> object:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
