"""Commands about runs: runs, show, logs."""

import sys
from typing import TYPE_CHECKING, Any

import click

from headway.cli.arrays import array_row, if_array, show_array, with_arrays
from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json, print_table, promise_of, say, start_of
from headway.views.terminal import LogText

if TYPE_CHECKING:
    from datetime import datetime


class Since(click.ParamType["datetime"]):
    """A moment: so long ago, or a date."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "datetime":
        """The moment that *value* means."""
        from datetime import datetime, timedelta

        from headway.clock import SystemClock
        from headway.units import parse_duration

        try:
            return SystemClock().now() - timedelta(seconds=parse_duration(value))
        except (ValueError, OverflowError):
            pass
        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no duration such as 2h or 3d, and no date such as 2026-01-31.",
                param,
                ctx,
            )


_STATES = (
    "Scheduled", "Late", "AwaitingHeadroom", "AwaitingRetry", "Pending", "Running", "Paused",
    "Suspended", "Cancelling", "Completed", "Failed", "TimedOut", "Cancelled", "Crashed",
)  # fmt: skip


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Newest runs to show.",
)
@click.option("--mine", is_flag=True, help="Only those whose owner is you, by your token.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only those in this state; may be given several times.",
)
@click.option("--since", type=Since(), help="Only those submitted since: 2h, 3d, 2026-01-31.")
@click.option("--name", default="", help="Only those whose name contains this.")
@click.option("--members", is_flag=True, help="Members of arrays one by one, not an array a line.")
@as_json
def runs(
    *,
    limit: int,
    mine: bool,
    states: tuple[str, ...],
    since: "datetime | None",
    name: str,
    members: bool,
    machine: bool,
) -> None:
    """List runs, newest first; an array is one line, unless states are asked for."""
    members = members or bool(states)
    with open_client() as client:
        views = client.runs(
            limit, name=name, states=states, since=since, mine=mine, members=members
        )
        if not members:
            views = with_arrays(views, client.arrays(limit, name=name, since=since, mine=mine))
    views = views[:limit]
    if machine:
        print_json(views)
        return
    print_table(
        ["run", "name", "owner", "state", "node", "submitted", "ran for", "progress", "why"],
        [array_row(view) if view.get("array_id") else _run_row(view) for view in views],
    )


def _run_row(view: dict[str, Any]) -> list[str]:
    from datetime import datetime

    from headway.units import format_duration

    again = f" (attempt {view['attempt']})" if view["attempt"] > 1 else ""
    at = view["submitted_at"]
    return [
        view["run_id"][:8],
        view["name"],
        view["owner"] or "unknown",
        view["state"] + again,
        (view["node"] or "") + (f", {view['size']}" if view["size"] else ""),
        f"{datetime.fromisoformat(at).astimezone():%d %b %H:%M}" if at else "",
        "" if view["duration_s"] is None else format_duration(view["duration_s"]),
        view["progress_text"] or "",
        (view["exit"] or {}).get("message") or view["reason"],
    ]


@click.command()
@click.argument("run", type=RUN)
@as_json
def show(run: str, machine: bool) -> None:
    """Everything about one run, or one array, by id, beginning of id, or name."""
    with open_client() as client:
        if (array := if_array(client.array, run)) is not None:
            print_json(array) if machine else show_array(array)
            return
        view = client.run(run)
        sections = [] if machine else client.report(view["run_id"])
    if machine:
        print_json(view)
        return
    say(f"{view['name']}  {view['state']}  attempt {view['attempt']}")
    say(_standing(view))
    for section in sections:
        click.echo()
        say(section["title"])
        print_table(section["columns"], section["rows"])
    if view.get("session"):
        say(f"session: {view['session']}")
    say(view["url"])


def _standing(view: dict[str, Any]) -> str:
    """How a run stands, in one line: how it ended, what it waits for, or how far it is."""
    if view["exit"]:
        return str(view["exit"]["message"])
    if view.get("waiting"):
        line = view["waiting"]
        said = f"{line['reason']}; number {line['position']} in the queue, start {start_of(line)}"
        return said + promise_of(line)
    if view["state"] != "Running" or "progress" not in view:
        return str(view["reason"])
    seen = view["progress"]
    done = seen["iteration"] if seen["iteration"] is not None else seen["epoch"]
    parts = [f"at {done:g} of {seen['total']}"] if done is not None and seen["total"] else []
    parts += [f"{name} {value:.4g}" for name, value in list(seen["metrics"].items())[:3]]
    parts += [view["progress_text"]] if view["progress_text"] else []
    return ", ".join(parts) or "no progress has been read from its log yet"


@click.command()
@click.argument("run", type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@as_json
def logs(run: str, follow: bool, machine: bool) -> None:
    """Print what the training program wrote.

    What would steer the terminal is left out, colours only where there is none. With --json it is
    whole.
    """
    with open_client() as client:
        run_id = client.standing(run)["run_id"]  # by then another run may have its name
        pieces = client.log(run_id, follow=follow)
        if machine:
            text = b"".join(pieces).decode(errors="replace")
            print_json({"run_id": run_id, "log": text})
            return
        clean = LogText(colours=sys.stdout.isatty())
        for piece in pieces:
            click.echo(clean.feed(piece), nl=False)
        click.echo(clean.rest(), nl=False)


COMMANDS = (runs, show, logs)
