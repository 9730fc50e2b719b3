"""What commands say of arrays, and the command that shows their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headway.cli.inputs import open_client
from headway.cli.output import Json, as_json, print_json, print_table, say
from headway.errors import InvalidInput, RunUnknown
from headway.model.document import Document
from headway.units import format_duration

if TYPE_CHECKING:
    from headway.model.array import Array
    from headway.model.job_text import JobText


def array_of(read: "JobText", words: tuple[str, ...], at_most: int | None) -> "Array | None":
    """The array of a job file, or the one that the command line gives in its place.

    Raises:
        InvalidInput: Something is wrong with it.
    """
    from headway.model.array import array_words, take_array

    array = read.array
    if words:
        array = take_array(Document({"array": array_words(words)}))
    if at_most is None:
        return array
    if array is None:
        raise InvalidInput("--at-most", at_most, "give --array, too, or an array in the job file")
    return replace(array, at_most=at_most)


def if_array(ask: Callable[[str], Json], name: str) -> Json | None:
    """What *ask* says of the array called *name*; None where no array is meant."""
    try:
        return ask(name)
    except RunUnknown:
        return None


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def tell_of(made: Mapping[str, Any]) -> None:
    """Say which array was submitted, and where to look at it."""
    name, short = made["name"], made["array_id"][:8]
    say(f"{name}: {made['array_id']}, {_members(made['size'])}")
    say(
        f"`headway runs` has it as one line, `headway show {short}` its members, "
        f"`headway results {short}` what they have found"
    )


def told_cancelled(view: Mapping[str, Any]) -> str:
    """What is said of an array that was cancelled."""
    stopped = f"{view['ended_now']} of its members were ended" if view["ended_now"] else "none ran"
    return f"{view['name']}: {view['state']}; {stopped}, and no more of them start"


def told_retried(view: Mapping[str, Any]) -> str:
    """What is said of an array whose members are tried again."""
    text = f"{view['name']}: {view['retried']} members are tried again"
    if view["follow"]:
        text += f", and {view['follow']} that had not started come after all"
    if view["not_yet"]:
        text += f"; {view['not_yet']} have only just ended: ask once more in a few seconds"
    return text


def array_row(view: Mapping[str, Any]) -> list[str]:
    """An array as a line of `headway runs`."""
    from headway.views.tables import array_counts, end_text

    done = (view["ended_well"] + view["failed"] + view["cancelled"]) / view["size"]
    at = datetime.fromisoformat(view["submitted_at"]).astimezone()
    return [
        view["array_id"][:8],
        f"{view['name']} ({view['size']} members)",
        view["owner"] or "unknown",
        view["state"],
        "",
        f"{at:%d %b %H:%M}",
        "",
        f"{done:.0%}{end_text(view)}",
        array_counts(view),
    ]


def show_array(view: Mapping[str, Any]) -> None:
    """An array with its members, for people."""
    from headway.views.tables import array_counts, end_text

    most = f", at most {view['at_most']} at once" if view["at_most"] else ""
    say(f"{view['name']}  {view['state']}  {_members(view['size'])}{most}")
    say(f"{array_counts(view)}{end_text(view)}")
    click.echo()
    print_table(*_table(view, with_metrics=False))


def _table(view: Mapping[str, Any], *, with_metrics: bool) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the members that have become runs."""
    from headway.views.tables import columns_of

    rows = view["members"]
    parameters = columns_of(rows, "parameters")
    metrics = columns_of(rows, "metrics") if with_metrics else []
    last = ["ran for", *metrics] if with_metrics else ["node", "ran for", "why"]
    cells = []
    for row in rows:
        ran = "" if row["runtime_s"] is None else format_duration(row["runtime_s"])
        told = [_number(row["metrics"].get(name)) for name in metrics]
        end = [ran, *told] if with_metrics else [row["node"] or "", ran, _why(row)]
        values = [_number(row["parameters"].get(name)) for name in parameters]
        cells.append([str(row["index"]), row["run_id"][:8], *values, row["state"], *end])
    return ["#", "run", *parameters, "state", *last], cells


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _why(row: Mapping[str, Any]) -> str:
    return str(row["exit"]["message"]) if row["exit"] and row["exit"]["kind"] != "ok" else ""


@click.command()
@click.argument("array", metavar="RUN")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--sort", metavar="METRIC", help="By this metric, the smallest first.")
@as_json
def results(array: str, *, as_csv: bool, sort: str | None, machine: bool) -> None:
    """Compare the members of an array: parameters and last metrics.

    A run is a table of one row.

    Examples:
      headway results sweep
      headway results sweep --sort loss --csv
    """
    from headway.views.tables import array_counts, results_csv

    with open_client() as client:
        view = if_array(client.array, array) or _as_array(client.run(array))
    if sort is not None:
        view["members"] = _sorted(view["members"], sort)
    if machine:
        print_json(view)
    elif as_csv:
        click.echo(results_csv(view["members"]), nl=False)
    elif not view["members"]:
        say(f"no member of {view['name']} has begun yet: {view['waiting']} wait")
    else:
        print_table(*_table(view, with_metrics=True))
        if view["waiting"] or view["running"]:
            say(f"not all yet: {array_counts(view)}")


def _as_array(run: Json) -> Json:
    """A run as an array of one member, which no parameter tells from others."""
    progress = run.get("progress", {"iteration": None, "epoch": None, "metrics": {}})
    row = {**run, **progress, "index": 1, "parameters": {}}
    return {"name": run["name"], "members": [row], "waiting": 0, "running": 0}


def _sorted(rows: Sequence[Json], metric: str) -> list[Json]:
    from headway.views.tables import columns_of

    known = columns_of(rows, "metrics")
    if metric not in known:
        raise InvalidInput("--sort", metric, f"give one of {', '.join(known) or 'none so far'}")
    return sorted(rows, key=lambda row: row["metrics"].get(metric, float("inf")))
