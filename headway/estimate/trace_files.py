"""Traces from CSV or Parquet files and back. Works on bytes; the caller opens the file."""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from headway.errors import InvalidInput
from headway.estimate.row_files import checked, is_number, read_rows
from headway.estimate.scale_out import TOLERANCE, impossible, of_all_gpus, speed_ups
from headway.model.trace import LONGEST_S, Trace

REQUIRED = ("network", "gpu_type", "gpus", "batch_size")
TIMES = ("iteration_s", "batch_s", "epoch_s", "runtime_s", "samples_per_s")
_TIMED = " | ".join(TIMES)
_LARGEST = 2**63 - 1
_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-[0-9]{1,9})?|[0-9a-f]{64}")
"""A run of a site and its attempt, or what an import made."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins so."""


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


_Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]
_Positive = Annotated[float, Field(gt=0, le=1e24)]
_Count = Annotated[int, Field(ge=1, le=_LARGEST)]
_Few = Annotated[int, Field(ge=0, le=1_000_000)]
_LOWER = BeforeValidator(str.lower)


class TraceFileRow(BaseModel):
    """One row of a file of traces: the columns that headway knows; empty cells are left out.

    docs/reference/traces.md is made from it.
    """

    network: str
    """Its name, as people spell it; needed."""
    gpu_type: str
    """Product name, ``cpu`` for none; needed."""
    gpus: _Few
    """In all, over every node; needed."""
    batch_size: _Count | None = None
    """Samples of each GPU, in one iteration; the column is needed."""
    iteration_s: _Seconds | None = None
    """Seconds of one step, in which **each** GPU takes a batch."""
    batch_s: _Seconds | None = None
    """Seconds of one batch over all GPUs together, 1 ÷ their throughput; kept as
    ``iteration_s`` = ``batch_s`` × GPUs."""
    epoch_s: _Seconds | None = None
    """Seconds of one pass over the data set."""
    runtime_s: _Seconds | None = None
    """Seconds of the whole run."""
    samples_per_s: _Positive | None = None
    """Of all GPUs together; one of these five is needed."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """That the GPUs are spread over."""
    precision: Annotated[Literal["fp32", "fp16", "amp", "bf16"], _LOWER] = "fp32"
    """One of ``fp32``, ``fp16``, ``amp`` and ``bf16``."""
    framework: str = ""
    """Such as ``pytorch``."""
    data_threads: _Few | None = None
    """That load data, on each GPU's side."""
    dataset_bytes: Annotated[int, Field(ge=0, le=_LARGEST)] | None = None
    """Size of the data set."""
    dataset_samples: _Count | None = None
    """Samples in an epoch."""
    epochs: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Of the run."""
    iterations: _Count | None = None
    """Of the run."""
    host_peak_bytes: _Count | None = None
    """Most host memory on a node; with exit ``oom`` a bound that was not enough."""
    gpu_peak_bytes: _Count | None = None
    """Most memory on a GPU; the same."""
    cpus: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """That it was granted."""
    exit: Annotated[Literal["ok", "oom", "failed"], _LOWER] = "ok"
    """One of ``ok``, ``oom`` and ``failed``."""
    started_at: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    """ISO 8601, UTC where no zone is given."""
    recipe: str = ""
    """Runs of one recipe are compared; the network where empty."""
    run_id: str | None = None
    """What tells it from others; made from the row where empty."""
    flops: _Positive | None = None
    """Operations of one sample's forward pass."""
    params: _Positive | None = None
    """Parameters of the network."""
    activations: _Positive | None = None
    """Elements of all layers' outputs for one sample."""
    layers: _Positive | None = None
    """Layers of the network."""


_MAY_BE_MISSING = TraceFileRow.model_fields.keys() - {"network", "gpu_type", "gpus", *TIMES}
"""Columns in which a program's way of writing nothing is read as nothing."""


@dataclass(frozen=True, slots=True)
class ImportedTraces:
    """What a file held."""

    traces: tuple[Trace, ...]
    problems: tuple[InvalidInput, ...]
    """One for each row that was left out, with its line."""
    metrics: tuple[str, ...]
    """Columns the schema does not know, kept with the traces."""
    dropped: tuple[str, ...]
    """Columns the schema does not know and that hold no number."""
    notices: tuple[str, ...] = ()
    """How something was read that may be meant in two ways."""


def parse(data: bytes, name: str, source: str) -> ImportedTraces:
    """The traces in *data*, the content of the file called *name*.

    Args:
        data: CSV or Parquet, as `row_files.read_rows` takes it.
        name: For messages, and to tell Parquet.
        source: Kept with each trace, to tell imported ones apart.

    Returns:
        Its traces, each with a `run_id` that the same file gives again.

    Raises:
        InvalidInput: *source* is no name, or the file as a whole cannot be used:
            columns are missing, there are no rows, or it is no such file.
    """
    source = _plain(source.strip(), "source", "")
    if not source:
        raise InvalidInput("source", source, "give a name")
    file = read_rows(data, name)
    file = replace(file, columns=tuple(map(_unquoted, file.columns)))
    file.need(REQUIRED)
    if not set(TIMES) & set(file.columns):
        file.need(TIMES[:1], f" or another of {', '.join(TIMES)}")
    others = [
        column for column in file.columns if column and column not in TraceFileRow.model_fields
    ]
    traces: dict[str, Trace] = {}
    problems: list[InvalidInput] = []
    seen: Counter[str] = Counter()
    for where, cells in file.lines:
        try:
            row = file.by_column([*map(_unquoted, cells)], where)
            trace = _trace(row, others, source, where)
            traces[where] = replace(trace, run_id=_own_id(trace, row, seen))
        except InvalidInput as problem:
            problems.append(problem)
    if not traces and not problems:
        raise InvalidInput("rows", 0, "give at least one row below the header", where=name)
    numeric = {name for trace in traces.values() for name in trace.metrics}
    dropped = tuple(column for column in others if column not in numeric)
    read, notices = _as_meant(list(traces.values()))
    wrong, lines = impossible(read), list(traces)
    problems += [
        InvalidInput(_TIMED, said, f"at most its GPUs × {TOLERANCE:g} times", where=lines[at])
        for at, said in wrong.items()
    ]
    kept = tuple(trace for at, trace in enumerate(read) if at not in wrong)
    return ImportedTraces(kept, tuple(problems), tuple(sorted(numeric)), dropped, notices)


def _as_meant(traces: list[Trace]) -> tuple[list[Trace], tuple[str, ...]]:
    """*traces* with `iteration_s` as the file means it, and what to say of that.

    Tables of throughputs mean a batch over all GPUs by it. That is taken for what is meant where
    most of the rows that can be compared would otherwise be faster than GPUs can be, and few so.
    """
    compared, other = speed_ups(traces), of_all_gpus(traces)
    wrong, wrong_so = len(impossible(traces)), len(impossible(other))
    if 2 * wrong <= len(compared) or 5 * wrong_so > len(compared):
        return traces, ()
    said = (
        f"iteration_s is read as the time of one batch over all GPUs together (batch_s): as the "
        f"time in which each GPU takes a batch, {wrong} of {len(compared)} rows on several GPUs "
        "would be faster than so many GPUs can be"
    )
    return other, (said,)


def write(traces: Sequence[Trace]) -> str:
    """*traces* as CSV that `parse` reads again; text that a spreadsheet would run is quoted."""
    names = [f.name for f in fields(Trace) if f.name not in {"metrics", "team", "owner", "beside"}]
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


def _own_id(trace: Trace, row: Mapping[str, str], seen: Counter[str]) -> str:
    """What tells *trace* from all others: the same file twice gives the same ids.

    That of a site's run or of an earlier import stays. Any other says which row
    it is: its source, its content and, since two measurements may well be
    equal, how many such rows the file had before it.
    """
    if trace.run_id is not None and _UNIQUE.fullmatch(trace.run_id):
        return trace.run_id
    content = json.dumps([trace.source, sorted((k, v) for k, v in row.items() if v)])
    seen[content] += 1
    return hashlib.sha256(f"{content} {seen[content]}".encode()).hexdigest()


def _trace(row: Mapping[str, str], others: Sequence[str], source: str, where: str) -> Trace:
    """One row; raises `InvalidInput` with the first cell that cannot be used."""
    plain = {column: _plain(text, column, where) for column, text in row.items()}
    given = {name: plain[name] for name in TraceFileRow.model_fields if plain.get(name)}
    known = checked(TraceFileRow, given, where)
    bound = known.exit != "ok" and (known.host_peak_bytes or known.gpu_peak_bytes)
    if not set(TIMES) & known.model_fields_set and not bound:
        allowed = "give one, or exit oom or failed with a peak"
        raise InvalidInput(_TIMED, "", allowed, where=where)
    if known.nodes > max(known.gpus, 1):
        raise InvalidInput("nodes", known.nodes, "give at most gpus", where=where)
    metrics = {column: float(plain[column]) for column in others if is_number(plain[column])}
    trace = Trace(**known.model_dump(exclude={"batch_s"}), source=source, metrics=metrics)
    if known.batch_s is None or known.iteration_s is not None:
        return trace
    return replace(trace, iteration_s=known.batch_s * max(known.gpus, 1))


def _plain(text: str, column: str, where: str) -> str:
    if text.startswith(("=", "@")):
        raise InvalidInput(column, text, "give a value, not a formula", where=where)
    if len(text) > 200 or any(not character.isprintable() for character in text):
        raise InvalidInput(column, text, "give at most 200 printable characters", where=where)
    return (
        "" if text.lower() in {"nan", "none", "null", "na"} and column in _MAY_BE_MISSING else text
    )
