"""Rows of CSV and Parquet files, checked by pydantic models.

What is wrong with a cell is one `InvalidInput` with the file, the line, the column, and what to
give instead. The standard library's reader is used rather than pandas': it goes on after a bad row
and knows its line, and half a second of imports would lie on the way to every estimate.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headway.errors import InvalidInput, NotInstalled

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
Row = TypeVar("Row", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows below a header; every cell is text, stripped."""

    name: str
    """For messages."""
    columns: tuple[str, ...]
    lines: Iterable[tuple[str, Sequence[str]]]
    """File and line of each row that is not empty, and its cells; can be walked once."""

    def need(self, columns: Sequence[str], hint: str = "") -> None:
        """Raise `InvalidInput` where one of *columns* is missing."""
        if missing := [column for column in columns if column not in self.columns]:
            allowed = f"add {', '.join(missing)}{hint}"
            raise InvalidInput("columns", ", ".join(self.columns), allowed, where=f"{self.name}:1")

    def by_column(self, cells: Sequence[str], where: str) -> dict[str, str]:
        """*cells* by column; one too many is refused, since it shifts all that follow it."""
        if len(cells) > len(self.columns):
            allowed = f"give {len(self.columns)}, as the header has"
            raise InvalidInput("cells", len(cells), allowed, where=where)
        missing = [""] * (len(self.columns) - len(cells))
        return dict(zip(self.columns, [*cells, *missing], strict=True))

    def rows(
        self, model: type[Row], needed: Sequence[str], optional: Sequence[str] = (), hint: str = ""
    ) -> Iterator[tuple[str, Row]]:
        """File and line of each row, and the row as a *model*.

        Args:
            model: What checks the rows.
            needed: Columns that must be there and, in every row, not empty.
            optional: Columns that are read where they are there and not empty.
            hint: End of the message that names the missing columns.

        Raises:
            InvalidInput: A column is missing; or at the first row that cannot be used.
        """
        self.need(needed, hint)
        for where, cells in self.lines:
            row = self.by_column(cells, where)
            given = {name: row[name] for name in needed}
            given |= {name: row[name] for name in optional if row.get(name)}
            yield where, checked(model, given, where)


def read_rows(data: bytes, name: str) -> RowFile:
    """The rows of a CSV (UTF-8, with or without a byte-order mark, or CP949) or Parquet file.

    Args:
        data: Content of the file.
        name: Its name; ``.parquet`` at the end, or how the data begin, says what it is.

    Raises:
        InvalidInput: It is no such file, has no header, or a column twice.
        NotInstalled: It is Parquet, and nothing here reads that.
    """
    if name.endswith(".parquet") or data.startswith(b"PAR1"):
        data = _as_csv(data, name)
    file = _csv(data, name)
    if not any(file.columns):
        raise InvalidInput("file", name, "give a file with a header and rows", where=name)
    twice = sorted({column for column in file.columns if file.columns.count(column) > 1})
    if twice:
        raise InvalidInput("columns", twice[0], "give each column once", where=name)
    return file


def checked(model: type[Row], cells: dict[str, Any], where: str) -> Row:
    """*cells* as a *model*; raises `InvalidInput` with the first that cannot be used."""
    try:
        return model.model_validate(cells)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        column, allowed = str(first["loc"][0]), first["msg"].replace("Input should be", "give")
        allowed = re.sub("give (?=greater|less)", "give a number ", allowed)
        raise InvalidInput(column, cells.get(column, ""), allowed, where=where) from None


def is_number(text: str) -> bool:
    """Whether *text* is a plain finite decimal number."""
    return bool(_NUMBER.fullmatch(text)) and math.isfinite(float(text))


def _csv(data: bytes, name: str) -> RowFile:
    reader = csv.reader(io.StringIO(_text(data, name), newline=""), strict=True)

    def lines() -> Iterator[tuple[str, list[str]]]:
        try:
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                if any(stripped):
                    yield f"{name}:{reader.line_num}", stripped
        except csv.Error as error:
            where = f"{name}:{reader.line_num}"
            raise InvalidInput("file", name, f"give a CSV file ({error})", where=where) from None

    rows = lines()
    header = next(rows, ("", []))[1]
    return RowFile(name, tuple(header), rows)


def _text(data: bytes, name: str) -> str:
    for encoding in ("utf-8-sig", "cp949"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise InvalidInput("file", name, "save it as UTF-8 (or CP949) text", where=name)


def _as_csv(data: bytes, name: str) -> bytes:
    """The Parquet file *data*."""
    try:
        import pandas as pd  # noqa: PLC0415 - half a second that CSV does without

        table = pd.read_parquet(io.BytesIO(data), dtype_backend="numpy_nullable")
    except ImportError as error:
        raise NotInstalled("Parquet files", "pyarrow", "parquet") from error
    except (ValueError, OSError) as error:
        raise InvalidInput("file", name, f"give a Parquet file ({error})", where=name) from None
    named_index = any(name is not None for name in table.index.names)
    return table.to_csv(index=named_index).encode()
