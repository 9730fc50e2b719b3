"""Write docs/reference/ from the code: job file, variables, blocks, metrics, JSON.

PYTHONPATH=. python benchmarks/reference.py
"""

import ast
import enum
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from benchmarks.answers import ANSWERS, EXAMPLES, keys, misfits
from blocks.site import HeadwayContainerPolicy, HeadwayLine, HeadwayNode
from headway.cli.main import headway
from headway.estimate.trace_files import TraceFileRow
from headway.model.job import TrainingJob
from headway.model.job_parts import After, Dataset, Resources, Session, Training
from headway.settings import Settings
from headway.views.metrics import exposition
from headway.views.site_snapshot import SiteSnapshot

FOLDER = Path(__file__).resolve().parents[1] / "docs/reference"
WIDTH = 100
PARTS = {"": TrainingJob} | {
    part.__name__.lower(): part for part in (Resources, Training, Dataset, After, Session)
}
BLOCKS = {
    "headway-node/NAME": HeadwayNode,
    "headway-line/site": HeadwayLine,
    "headway-container-policy/site": HeadwayContainerPolicy,
}
MADE = "Made from the code by `python benchmarks/reference.py`."


def table(*rows: tuple[str, ...]) -> str:
    """Of Markdown; the first row is its head."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def page(title: str, *parts: str) -> str:
    """Of the reference."""
    return "\n\n".join((f"# {title}", *parts)) + "\n"


def source(model: type) -> ast.ClassDef | None:
    """Of *model*; None where a key is a word of Python, so that it has no class of its own."""
    try:
        (part,) = ast.parse(inspect.getsource(model)).body
    except OSError:
        return None
    return part if isinstance(part, ast.ClassDef) else None


def bases(shape: type) -> list[type]:
    """What *shape* extends that has keys: a TypedDict itself does not know it."""
    part, module = source(shape), vars(sys.modules[shape.__module__])
    names = [each.id for each in (part.bases if part else ()) if isinstance(each, ast.Name)]
    return [module[name] for name in names if keys(module[name])]


def docstrings(model: type) -> dict[str, str]:
    """What stands below each field of *model* in its source."""
    said, part = {}, source(model)
    for field, text in pairwise(part.body if part else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                said[name] = prose(words)
    return said


def prose(text: str) -> str:
    """A docstring as the pages have it."""
    text = " ".join(text.split()).replace("``", "`")
    return re.sub(r"\bdocs/(\w+)\.md", r"[\1](../\1.md)", text)


def default(field: FieldInfo) -> str:
    """In a cell, as people write it; empty where there is none, or one that follows from others."""
    extra = field.json_schema_extra
    value = extra.get("default", field.default) if isinstance(extra, dict) else field.default
    if value is PydanticUndefined or (not value and value is not False and value != 0):
        return ""
    if isinstance(value, BaseModel):
        return ""
    value = getattr(value, "value", value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def fields(model: type[BaseModel]) -> str:
    """A table of a form: keys, defaults as they are written, and what they mean."""
    said = docstrings(model)
    rows = [
        (
            f"`{name}`",
            default(field),
            said.get(name) or field.description or field.title or "",
        )
        for name, field in model.model_fields.items()
    ]
    return table(("key", "default", "meaning"), *rows)


UNITS = {"_bytes": "bytes", "_s": "seconds", "_frac": "0 to 1", "_at": "time"}


def kind(shape: Any, key: str = "") -> str:
    """A type as people read it, with the unit that the end of *key* says."""
    origin, of = get_origin(shape) or shape, get_args(shape)
    if origin in (Union, UnionType):
        told = [kind(each, key) for each in of if each is not NoneType]
        return " or ".join(told + ["null"] * (NoneType in of))
    if origin in (list, tuple):
        return f"list of {kind(of[0], key)}"
    if origin in (dict, Mapping):
        return f"object: {kind(of[1], key)} by name"
    if keys(shape):
        return f"[{shape.__name__}](#{shape.__name__.lower()})"
    if isinstance(shape, type) and issubclass(shape, enum.Enum):
        return "one of " + ", ".join(f"`{each.value}`" for each in shape)
    unit = next((unit for end, unit in UNITS.items() if key.endswith(end)), None)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any"}
    return unit or names.get(shape, "time")


def parts(shape: Any) -> Iterator[type]:
    """*shape*, where it has keys, and those that are in it."""
    if of_key := keys(shape):
        yield shape
    for each in (*(bases(shape) if of_key else ()), *of_key.values(), *get_args(shape)):
        yield from parts(each)


def of_answer(shape: Any) -> list[type]:
    """What may be the whole of an answer, or an item of one."""
    below = [each for it in get_args(shape) for each in of_answer(it)]
    return [shape] if keys(shape) else below


def answers() -> Iterator[str]:
    """The sections of the page about JSON: commands, then each shape with an example of it."""
    named = (
        (f"`{name}`" if name.startswith("GET") else f"`headway {name}`", kind(shape))
        for name, shape in ANSWERS.items()
    )
    yield table(("command", "answer"), *named)
    examples: dict[str, Any] = json.loads(EXAMPLES.read_text())
    of_shape: dict[type, tuple[str, Any]] = {}
    for name, example in examples.items():
        for told in example[:1] if isinstance(example, list) else [example]:
            fits = next(each for each in of_answer(ANSWERS[name]) if not misfits(each, told))
            of_shape.setdefault(fits, (name, told))
    shapes = {each: None for shape in ANSWERS.values() for each in parts(shape)}
    for shape in sorted(shapes, key=lambda each: each.__name__.lower()):
        said = docstrings(shape)
        extended = bases(shape)
        known = {key for each in extended for key in keys(each)}
        needed = getattr(shape, "__required_keys__", keys(shape))
        rows = [
            (f"`{key}`" + ("" if key in needed else " (may be missing)"), kind(of, key),
             said.get(key, "").replace("None", "null"))
            for key, of in keys(shape).items() if key not in known
        ]  # fmt: skip
        more = [f"All keys of {kind(each)}, and:" for each in extended]
        about = prose(inspect.getdoc(shape) or "").replace("None", "null")
        yield "\n\n".join((f"## {shape.__name__}", about, *more))
        yield table(("key", "type", "meaning"), *rows)
        if shape in of_shape:
            name, told = of_shape[shape]
            text = json.dumps(told, indent=1, ensure_ascii=False)
            yield f"Of `headway {name}`:\n\n```json\n{text}\n```"


def commands(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of *command*, and of those below it."""
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        _, found, _ = command.resolve_command(context, [name])
        assert found is not None
        below = click.Context(found, info_name=name, parent=context, max_content_width=WIDTH)
        below.terminal_width = WIDTH
        yield from commands(found, below)


def metrics() -> str:
    """Names and meanings, as an empty site tells them."""
    nothing = SiteSnapshot(datetime(2026, 1, 1, tzinfo=UTC), [], [], {}, [], [], [], [], 0)
    lines = exposition(nothing).decode().splitlines()
    helps = [line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP ")]
    return table(("metric", "meaning"), *((f"`{name}`", text) for name, text in helps))


def all_commands() -> str:
    """The page of commands, which is made as the documents are built: their help is at hand."""
    top = click.Context(headway, info_name="headway", max_content_width=WIDTH)
    top.terminal_width = WIDTH
    return page("Commands", "What `--help` says of each.", *commands(headway, top))


def pages() -> dict[str, str]:
    """The text of each page that is kept, by the name of its file."""
    said = docstrings(Settings)
    variables = [
        (f"`HEADWAY_{name.upper()}`", default(field), said[name])
        for name, field in Settings.model_fields.items()
        if name != "nvml_library"  # for tests
    ]
    return {
        "job-file.md": page(
            "Keys of the job file",
            f"{MADE} [Jobs](../jobs.md) explains them.",
            *(f"## `{at}`\n\n{fields(it)}" if at else fields(it) for at, it in PARTS.items()),
        ),
        "settings.md": page(
            "Variables of a node",
            f"{MADE} They are read once, when a process starts. But for `HEADWAY_HOME` they may be "
            "in [`config.yaml`](../operating.md#configuration), too. `HEADWAY_TIMEZONE`, not in "
            "it, is that of the nightly refit at 02:00; the machine's when not set.",
            table(("variable", "default", "meaning"), *variables),
        ),
        "blocks.md": page(
            "Blocks",
            f"{MADE} They are edited in Prefect's UI under *Blocks*, or in `config.yaml`, and take "
            "effect in seconds.",
            *(f"## {name}\n\n{fields(block)}" for name, block in BLOCKS.items()),
        ),
        "traces.md": page(
            "Columns of a trace file",
            f"{MADE} A cell that is empty is unknown. Any other column of numbers is kept as a "
            "metric; a name that begins with `--` is an option of the command.",
            fields(TraceFileRow),
        ),
        "json.md": page(
            "JSON",
            f"{MADE} What commands print with `--json`, and the gateway answers (`/v1/docs`).",
            "Keys are stable: new ones may come, none goes. `null`: not known, not yet so, or "
            "there is none; what else it means is said. Times are ISO 8601 in UTC; costs are in "
            "the site's currency. Control characters in texts are escaped, not left out. "
            "Exit status: 0 done, 1 the run failed, 2 bad input, 3 the site is not reachable. The "
            "gateway takes strict JSON of at most 256 KiB: no NaN, no infinities, no number beyond "
            "64 bits, no key twice; else 422 and one line.",
            "Examples are real; lists in them have their first item, long texts their beginning, "
            "and a job its first keys.",
            *answers(),
        ),
        "metrics.md": page(
            "Names of metrics",
            f"{MADE} [Metrics](../metrics.md) says how to read them.",
            metrics(),
            "Once runs have ended and started, there are `headway_estimate_runtime_error_ratio`, "
            "`headway_estimate_interval_coverage_ratio`, `headway_start_interval_coverage_ratio` "
            "and `headway_start_error_ratio`, too.",
        ),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
