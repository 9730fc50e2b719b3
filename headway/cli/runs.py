"""Commands about runs: runs, show, logs."""

import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from headway.cli.arrays import array_row, if_array, show_array, told_cancelled, told_retried
from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import Json, as_json, print_json, print_table, say, start_of, told_by
from headway.clock import SystemClock
from headway.errors import EndUntold, GatewayUnreachable
from headway.units import format_duration, parse_duration

if TYPE_CHECKING:
    from headway.client import Client


class Since(click.ParamType[datetime]):
    """A moment: so long ago, or a date."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The moment that *value* means."""
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


def _tell(views: list[Json]) -> None:
    print_table(
        ["run", "name", "owner", "state", "node", "submitted", "ran for", "progress", "why"],
        [array_row(view) if view.get("array_id") else _run_row(view) for view in views],
        spare=("submitted", "owner", "node", "ran for"),
        cut=True,
    )


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
@told_by(_tell)
def runs(*, limit: int, states: tuple[str, ...], members: bool, **wanted: Any) -> list[Json]:
    """List runs, newest first.

    An array is one line, unless states are asked for.

    Examples:
      headway runs --mine --since 2d
      headway runs --state running --state awaitingheadroom
    """
    members = members or bool(states)
    with open_client() as client:
        views = client.runs(limit, states=states, members=members, **wanted)
        if not members:
            views += client.arrays(limit, **wanted)
            views.sort(key=lambda view: str(view["submitted_at"]), reverse=True)
    return views[:limit]


def _run_row(view: Json) -> list[str]:
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
    """Show everything about a run or an array.

    RUN is an id, the beginning of one, or a name.

    Examples:
      headway show flights
      headway show 3f2a --json
    """
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
        say(f"session, once its program listens: {view['session']}")
    say(view["url"])


def _standing(view: Json) -> str:
    """How a run stands, in one line: how it ended, what it waits for, or how far it is."""
    if view["exit"]:
        return str(view["exit"]["message"])
    if view.get("waiting"):
        line = view["waiting"]
        return f"{line['reason']}; number {line['position']} in the queue, start {start_of(line)}"
    if view["state"] != "Running" or "progress" not in view:
        return str(view["reason"])
    seen = view["progress"]
    parts = [view["progress_text"]] if view["progress_text"] else []
    parts += [f"{name} {value:.4g}" for name, value in list(seen["metrics"].items())[:3]]
    return ", ".join(parts) or "no progress has been read from its log yet"


@click.command()
@click.argument("run", type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@as_json
def logs(run: str, follow: bool, machine: bool) -> None:
    """Print what the training program wrote.

    Sequences that would control the terminal are removed, colours only where there is no terminal.
    With --json nothing is removed.

    Examples:
      headway logs flights --follow
      headway logs 3f2a --json
    """
    from headway.views.terminal import LogText

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


_TOLD_WITHIN_S = 15.0
"""The janitor of the run's node looks every five seconds."""
_AWAY = (
    "The Prefect server does not answer, so the ledger alone knows of it: the run is stopped, and "
    "Prefect says so when it is back"
)
_NO_GATEWAY = (
    "Where no gateway answers, an operator on the site's own machine ends a run with `headway up` "
    "and this command again, or in Prefect: `prefect flow-run cancel ID`."
)


def _tell_cancelled(done: Json) -> None:
    if "array_id" in done:
        say(told_cancelled(done))
    elif done["over"]:
        how = f": {done['message']}" if done["message"] else ""
        say(f"{done['name']}: {done['state']}{how}; it had ended before, nothing was cancelled")
    else:
        say(f"{done['name']}: {done['state']}{'' if done['told'] else f'. {_AWAY}'}")


@click.command()
@click.argument("run", type=RUN)
@told_by(_tell_cancelled)
def cancel(run: str) -> Json:
    """End a run, or all members of an array.

    The program gets its grace time. Where several runs share a name, the newest that has not ended
    is meant.

    Examples:
      headway cancel flights
      headway cancel 3f2a --json
    """
    try:
        with open_client() as client:
            return if_array(client.cancel_array, run) or client.cancel(run)
    except GatewayUnreachable:
        click.echo(_NO_GATEWAY, err=True)
        raise


def _tell_retried(done: Json) -> None:
    if "array_id" in done:
        say(told_retried(done))
    else:
        say(f"{done['name']}: {done['state']}, as attempt {done['attempt']}")


@click.command()
@click.argument("run", type=RUN)
@told_by(_tell_retried)
def retry(run: str) -> Json:
    """Try an ended run once more, from its checkpoint.

    It does not matter how it ended. In an array, all members that did not complete are retried.

    Examples:
      headway retry flights
      headway retry 3f2a --json
    """
    with open_client() as client:
        return if_array(client.retry_array, run) or _retried(client, run)


def _retried(client: "Client", run: str) -> Json:
    """Wait until Prefect knows how the run ended: earlier, a retry would be taken for a mistake."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + _TOLD_WITHIN_S
    while True:
        try:
            return client.retry(run)
        except EndUntold:
            if clock.monotonic_s() > end_s:
                raise
            clock.sleep(0.5)
