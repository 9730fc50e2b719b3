"""Write docs/reference/ from the code: job file, variables, blocks, metrics.

PYTHONPATH=. python benchmarks/reference.py
"""

import ast
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

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


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field of *model* in its source."""
    (part,) = ast.parse(inspect.getsource(model)).body
    said = {}
    for field, text in pairwise(part.body if isinstance(part, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                said[name] = " ".join(words.split()).replace("``", "`")
    return said


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
