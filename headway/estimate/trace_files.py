"""Traces from CSV or Parquet files and back. Works on bytes; the caller opens the file."""

import csv
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from headway.errors import InvalidInput, shown
from headway.model.trace import Trace

REQUIRED = ("network", "gpu_type", "gpus", "batch_size")
TIMES = ("iteration_s", "epoch_s", "runtime_s", "samples_per_s")
EXITS = ("ok", "oom", "failed")
PRECISIONS = ("fp32", "fp16", "amp", "bf16")
LONGEST_S = 100 * 365 * 86_400.0
"""No training run takes a century: such a number is in another unit, or no time."""
LARGEST = 2.0**63
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-[0-9]{1,9})?|[0-9a-f]{64}")
"""A run of a site and its attempt, or what an import made."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins so."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file held."""

    traces: tuple[Trace, ...]
    problems: tuple[InvalidInput, ...]
    """One for each row that was left out, with its line."""
    metrics: tuple[str, ...]
    """Columns the schema does not know, kept with the traces."""
    dropped: tuple[str, ...]
    """Columns the schema does not know and that hold no number."""


def parse(data: bytes, name: str, source: str) -> Imported:
    """The traces in *data*, the content of the file called *name*.

    Args:
        data: CSV (UTF-8, with or without a byte-order mark, or CP949) or Parquet.
        name: For messages; ``.parquet`` at its end, or how the data begin, says what it is.
        source: Kept with each trace, to tell imported ones apart.

    Returns:
        Its traces, each with a `run_id` that the same file gives again.

    Raises:
        InvalidInput: *source* is no name, or the file as a whole cannot be used:
            columns are missing, there are no rows, or it is no such file.
    """
    source = _plain(source, "source", "")
    if not source:
        raise InvalidInput("source", source, "give a name")
    is_parquet = name.endswith(".parquet") or data.startswith(b"PAR1")
    header, rows = _parquet(data, name) if is_parquet else _csv(data, name)
    missing = [column for column in REQUIRED if column not in header]
    if missing:
        raise InvalidInput("columns", ", ".join(header), f"add {', '.join(missing)}", where=name)
    if not set(TIMES) & set(header):
        raise InvalidInput(
            "columns", ", ".join(header), f"add one of {', '.join(TIMES)}", where=name
        )
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise InvalidInput("columns", twice[0], "give each column once", where=name)
    others = [column for column in header if column and column not in _READERS]
    traces: list[Trace] = []
    problems: list[InvalidInput] = []
    numeric: set[str] = set()
    seen: Counter[str] = Counter()
    for line, cells in rows:
        try:
            row = _row(header, cells, f"{name}:{line}")
            trace = _trace(row, others, source, f"{name}:{line}")
            traces.append(replace(trace, run_id=_own_id(trace, row, seen)))
            numeric.update(traces[-1].metrics)
        except InvalidInput as problem:
            problems.append(problem)
    if not traces and not problems:
        raise InvalidInput("rows", 0, "give at least one row below the header", where=name)
    dropped = tuple(column for column in others if column not in numeric)
    return Imported(tuple(traces), tuple(problems), tuple(sorted(numeric)), dropped)


def write(traces: Sequence[Trace]) -> str:
    """*traces* as CSV that `parse` reads again; text that a spreadsheet would run is quoted."""
    names = [f.name for f in fields(Trace) if f.name != "metrics"]
    metrics = sorted({m for trace in traces for m in trace.metrics} - set(names))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in [*names, *metrics]])
    for trace in traces:
        own = [_cell(getattr(trace, name)) for name in names]
        writer.writerow([*own, *(_cell(trace.metrics.get(metric)) for metric in metrics)])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return repr(value)


def _unquoted(cell: str) -> str:
    """*cell* as it was before `_cell` kept a spreadsheet from running it."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _csv(data: bytes, name: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    reader = csv.reader(io.StringIO(_text(data, name), newline=""))
    try:
        header = [_unquoted(column.strip()) for column in next(reader, [])]
    except csv.Error as error:
        raise InvalidInput("file", name, f"give a CSV file ({error})", where=name) from None

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [*map(_unquoted, cells)]
        except csv.Error as error:
            where = f"{name}:{reader.line_num}"
            raise InvalidInput("file", name, f"give a CSV file ({error})", where=where) from None

    return header, rows()


def _text(data: bytes, name: str) -> str:
    for encoding in ("utf-8-sig", "cp949"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise InvalidInput("file", name, "save it as UTF-8 (or CP949) text", where=name)


def _parquet(data: bytes, name: str) -> tuple[list[str], Iterator[tuple[int, list[Any]]]]:
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that CSV does without
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput("file", name, f"give a Parquet file ({error})", where=name) from None
    rows = ([*row.values()] for row in table.to_pylist())
    return table.column_names, enumerate(rows, 1)


def _row(header: Sequence[str], cells: Sequence[Any], where: str) -> dict[str, Any]:
    """*cells* by column; one too many is refused, since it shifts all that follow it."""
    if len(cells) > len(header):
        raise InvalidInput(
            "cells", len(cells), f"give {len(header)}, as the header has", where=where
        )
    return dict(zip(header, cells, strict=False))


def _own_id(trace: Trace, row: Mapping[str, Any], seen: Counter[str]) -> str:
    """What tells *trace* from all others: the same file twice gives the same ids.

    That of a site's run or of an earlier import stays. Any other says which row
    it is: its source, its content and, since two measurements may well be
    equal, how many such rows the file had before it.
    """
    if trace.run_id is not None and _UNIQUE.fullmatch(trace.run_id):
        return trace.run_id
    content = json.dumps([trace.source, sorted((k, str(v)) for k, v in row.items() if v != "")])
    seen[content] += 1
    return hashlib.sha256(f"{content} {seen[content]}".encode()).hexdigest()


def _trace(row: Mapping[str, Any], others: Sequence[str], source: str, where: str) -> Trace:
    """One row; raises `InvalidInput` with the first cell that cannot be used."""
    known: dict[str, Any] = {}
    for column, read in _READERS.items():
        text = _plain(row.get(column), column, where)
        if text:
            known[column] = read(text, column, where)
    for column in ("network", "gpu_type", "gpus"):
        if column not in known:
            raise InvalidInput(column, "", "give a value", where=where)
    known.setdefault("batch_size", None)
    lower_bound = known.get("exit") == "oom" and {"host_peak_bytes", "gpu_peak_bytes"} & set(known)
    if not set(TIMES) & set(known) and not lower_bound:
        raise InvalidInput(" | ".join(TIMES), "", "give one, or exit oom with a peak", where=where)
    if known.get("nodes", 1) > max(known["gpus"], 1):
        raise InvalidInput("nodes", known["nodes"], "give at most gpus", where=where)
    metrics = {}
    for column in others:
        text = _plain(row.get(column), column, where)
        if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            metrics[column] = float(text)
    return Trace(**known, source=source, metrics=metrics)


def _plain(value: object, column: str, where: str) -> str:
    text = "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)
    text = text.strip()
    if text.startswith(("=", "@")):
        raise InvalidInput(column, text, "give a value, not a formula", where=where)
    if len(text) > 200 or any(not character.isprintable() for character in text):
        raise InvalidInput(column, text, "give at most 200 printable characters", where=where)
    return (
        "" if text.lower() in {"nan", "none", "null", "na"} and column in _MAY_BE_MISSING else text
    )


def _amount(low: float, high: float, unit: str) -> Callable[[str, str, str], float]:
    def read(text: str, column: str, where: str) -> float:
        allowed = f"give a plain number of {unit}, above {low:g} and at most {high:g}"
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not low < value <= high:
            raise InvalidInput(column, text, allowed, where=where)
        return value

    return read


def _whole(low: int, high: float = LARGEST - 1) -> Callable[[str, str, str], int]:
    def read(text: str, column: str, where: str) -> int:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not (low <= value <= high and value == math.floor(value)):
            raise InvalidInput(column, text, f"give a whole number from {low}", where=where)
        return int(value)

    return read


def _one_of(choices: Sequence[str]) -> Callable[[str, str, str], str]:
    def read(text: str, column: str, where: str) -> str:
        if text.lower() not in choices:
            raise InvalidInput(column, text, f"give one of {', '.join(choices)}", where=where)
        return text.lower()

    return read


def _words(text: str, column: str, where: str) -> str:
    del column, where  # the shape of a reader
    return text


def _moment(text: str, column: str, where: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        allowed = f"give a time such as 2026-01-02T03:04:05Z, not {shown(text, 20)}"
        raise InvalidInput(column, text, allowed, where=where) from None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


_SECONDS = _amount(0, LONGEST_S, "seconds")
_POSITIVE = _amount(0, 1e24, "units")
_READERS: dict[str, Callable[[str, str, str], Any]] = {
    "network": _words,
    "gpu_type": _words,
    "gpus": _whole(0, 1_000_000),
    "batch_size": _whole(1),
    "iteration_s": _SECONDS,
    "epoch_s": _SECONDS,
    "runtime_s": _SECONDS,
    "samples_per_s": _amount(0, 1e12, "samples a second"),
    "nodes": _whole(1, 100_000),
    "precision": _one_of(PRECISIONS),
    "framework": _words,
    "data_threads": _whole(0, 1_000_000),
    "dataset_bytes": _whole(0),
    "dataset_samples": _whole(1),
    "epochs": _amount(0, 1e9, "epochs"),
    "iterations": _whole(1),
    "host_peak_bytes": _whole(1),
    "gpu_peak_bytes": _whole(1),
    "cpus": _amount(0, 1e6, "CPUs"),
    "exit": _one_of(EXITS),
    "started_at": _moment,
    "recipe": _words,
    "run_id": _words,
    "flops": _POSITIVE,
    "params": _POSITIVE,
    "activations": _POSITIVE,
    "layers": _POSITIVE,
}
_MAY_BE_MISSING = frozenset(_READERS) - {"network", "gpu_type", "gpus", *TIMES}
"""Columns in which a program's way of writing nothing is read as nothing."""
