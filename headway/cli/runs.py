"""Commands about runs: submit, runs, show, logs, cancel, queue."""

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from headway.views.terminal import LogText, plain

if TYPE_CHECKING:
    from datetime import datetime

    from headway.ledger.records import RunRecord
    from headway.model.job import TrainingJob
    from headway.prefect.client import FlowRun, PrefectServer
    from headway.site import Site

_INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

A_FILE = click.File("rb")
"""A file to read; ``-`` for standard input."""
LARGEST_FILE_BYTES = 1 << 30


class FiniteRange(click.FloatRange):
    """Numbers of a range; neither infinite nor "nan", which no comparison keeps out."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number in *value*."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


as_json = click.option("--json", "machine", is_flag=True, help="Print JSON with stable keys.")


def name_of(file: BinaryIO) -> str:
    """The path that *file* was opened with; ``-`` for standard input."""
    # Whoever puts something else in the place of standard input need not name it.
    name: str = getattr(file, "name", "<stdin>")
    return "-" if name == "<stdin>" else name


def read_text(file: BinaryIO) -> bytes:
    """The text of a job; of too much, enough to be refused."""
    from headway.model.yaml_document import MAX_TEXT_BYTES

    return file.read(MAX_TEXT_BYTES + 1)


def read_data(file: BinaryIO) -> bytes:
    """All that is in *file*.

    Raises:
        InvalidInput: It is larger than `LARGEST_FILE_BYTES`.
    """
    from headway.errors import InvalidInput
    from headway.units import format_size

    data = file.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        most = format_size(LARGEST_FILE_BYTES)
        raise InvalidInput("file", f"more than {most}", f"give at most {most}", where=name_of(file))
    return data


def say(text: str, *, err: bool = False) -> None:
    """One line for people, whatever names are in it."""
    click.echo(plain(text), err=err)


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2))


def open_server(site: "Site") -> "PrefectServer":
    """The Prefect server that PREFECT_API_URL names, or this machine's."""
    import os

    from headway.prefect.auth import auth_for
    from headway.prefect.client import PrefectServer, checked_address

    url = os.environ.get("PREFECT_API_URL") or site.settings.api_url
    url = checked_address("PREFECT_API_URL", url)
    return PrefectServer(url, auth=auth_for(site.settings, url))


def this_site() -> "Site":
    """The site that the environment names."""
    from headway.site import current_site

    return current_site()


def ui_url(server: "PrefectServer") -> str:
    """Where a person looks at this site."""
    return server.api_url.removesuffix("/api")


@click.command()
@click.argument("job_file", type=A_FILE)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one field.")
@click.option("--watch", is_flag=True, help="Follow the run to its end.")
@click.option("--key", help="Submitting twice with one key gives one run.")
@click.option("--pool", help="Work pool, where the site has several.")
@click.option("--queue", help="Work queue of the pool; its priority decides who goes first.")
@click.option("--node", help="Run on this node and nowhere else.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; hand in nothing.")
@as_json
def submit(
    *,
    job_file: BinaryIO,
    overrides: tuple[str, ...],
    watch: bool,
    key: str | None,
    pool: str | None,
    queue: str | None,
    node: str | None,
    dry_run: bool,
    machine: bool,
) -> None:
    """Hand a job to the site: `headway submit job.yaml --set resources.cpus=2`."""
    from headway.gateway.submit import read_for, refuse_impossible, refuse_missing

    site = this_site()
    read = read_for(site, read_text(job_file), filename=name_of(job_file), overrides=overrides)
    job, queue = read.job, node or queue
    refuse_impossible(site, read, pool=pool or "", queue=queue or "")  # needs no server
    with open_server(site) as server:
        goes_to = server.destination(pool, queue)["work_pool_name"]
        refuse_impossible(site, read, pool=goes_to, queue=queue or "")
        refuse_missing(site, read, server, pool=goes_to, queue=queue or "")
        if dry_run:
            _say_what_would_happen(site, job, goes_to, queue or "default", machine=machine)
            return
        run = server.submit(
            {"job": job.document()},
            name=job.name,
            tags=[f"team:{job.team}"],
            key=key,
            pool=pool,
            queue=queue,
        )
        url = f"{ui_url(server)}/runs/flow-run/{run.run_id}"
        if machine and not watch:
            print_json({"run_id": run.run_id, "name": run.name, "url": url})
            return
        if not machine:
            say(f"{run.name}: {run.run_id}")
            say(f"watch it at {url}")
        if watch:
            from headway.views.watch import watch_run

            try:
                sys.exit(watch_run(site, server, run.run_id, machine=machine))
            except KeyboardInterrupt:
                short = run.run_id[:8]
                click.echo(
                    f"the run goes on; `headway show {short}` looks again, "
                    f"`headway cancel {short}` ends it",
                    err=True,
                )
                sys.exit(_INTERRUPTED)


def _say_what_would_happen(
    site: "Site", job: "TrainingJob", pool: str, queue: str, *, machine: bool
) -> None:
    from headway.gateway.submit import rehearse
    from headway.views.documents import rehearsal_view

    view = rehearsal_view(*rehearse(site, job, pool=pool, queue=queue))
    if machine:
        print_json(view)
        return
    from headway.units import format_duration, format_size

    said = view["predicted"]
    low, high = (format_duration(said[key] or 0) for key in ("runtime_low_s", "runtime_high_s"))
    basis = _BASES[view["host_memory_basis"]]
    print_table(
        ["", ""],
        [
            ["starts", view["reason"]],
            ["position", str(view["position"] or "behind those that are planned for")],
            [
                "expected",
                _when(view),
            ],
            [
                "runtime",
                f"{format_duration(said['runtime_s'] or 0)} ({low} to {high})"
                if view["runtime_known"]
                else "not known: nothing like it, and nothing else, has run here",
            ],
            ["host memory", f"{format_size(view['needs_host_memory_bytes'])}, {basis}"],
            ["each GPU", _each_gpu(view)],
            ["cost", "–" if said["cost"] is None else f"{said['cost']:.4f}"],
            ["rests on", said["basis"]],
        ],
    )


_BASES = {
    "declared": "as declared",
    "predicted": "as runs like it have shown",
    "prior": "a guess: nothing like it has run",
    "retry": "more than was not enough",
}
"""Where a number of a demand comes from, for people."""


def _each_gpu(view: Mapping[str, Any]) -> str:
    from headway.units import format_size

    if not view["needs_gpus"]:
        return "–"
    size = format_size(view["needs_gpu_memory_bytes"]) if view["needs_gpu_memory_bytes"] else ""
    whole = "whole" + (f", at least {size}" if size else "") if view["needs_whole_gpus"] else size
    return f"{whole}, {_BASES[view['gpu_memory_basis']]}"


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
@click.option("--mine", is_flag=True, help="Only those whose owner has your account's name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only those in this state; may be given several times.",
)
@click.option("--since", type=Since(), help="Only those submitted since: 2h, 3d, 2026-01-31.")
@click.option("--name", default="", help="Only those whose name contains this.")
@as_json
def runs(
    *,
    limit: int,
    mine: bool,
    states: tuple[str, ...],
    since: "datetime | None",
    name: str,
    machine: bool,
) -> None:
    """List runs, newest first."""
    from headway.gateway.submit import os_user
    from headway.views.documents import owner_of, run_view
    from headway.views.watch import progress_of, standings

    site = this_site()
    me = os_user()
    with open_server(site) as server:
        seen = server.runs(
            limit,
            name=name,
            states=states,
            since=since,
            keep=lambda run: not mine or owner_of(run, None) == me,
        )
        url = ui_url(server)
    records = site.ledger.runs.of([run.run_id for run in seen])
    far = progress_of(standings(site, list(records.values())))
    views = [run_view(run, records.get(run.run_id), url, far.get(run.run_id)) for run in seen]
    if machine:
        print_json(views)
        return
    print_table(
        ["run", "name", "owner", "state", "node", "submitted", "ran for", "progress", "why"],
        [_run_row(view) for view in views],
    )


def _run_row(view: dict[str, Any]) -> list[str]:
    from datetime import datetime

    from headway.units import format_duration

    again = f" (attempt {view['attempt']})" if view["attempt"] > 1 else ""
    at = view["submitted_at"]
    progress = [] if view["done_frac"] is None else [f"{view['done_frac']:.0%}"]
    if view["remaining_s"] is not None:
        progress.append(f"{format_duration(view['remaining_s'])} left")
    return [
        view["run_id"][:8],
        view["name"],
        view["owner"] or "unknown",
        view["state"] + again,
        view["node"] or "",
        f"{datetime.fromisoformat(at).astimezone():%d %b %H:%M}" if at else "",
        "" if view["duration_s"] is None else format_duration(view["duration_s"]),
        ", ".join(progress),
        (view["exit"] or {}).get("message") or view["reason"],
    ]


def _found(site: "Site", server: "PrefectServer", text: str) -> "tuple[FlowRun, RunRecord | None]":
    """The run called *text*: its id, the beginning of it, or its name."""
    from headway.errors import RunUnknown

    if not text:
        raise RunUnknown(text)  # each id begins with it: a variable that was not set
    try:
        record = site.ledger.runs.find(text)
    except RunUnknown:
        # Perhaps no worker has seen it yet; then Prefect alone knows it.
        for run in server.runs(200):
            if run.name == text or run.run_id.startswith(text):
                return run, None
        raise
    return server.run(record.run_id), record


@click.command()
@click.argument("run")
@as_json
def show(run: str, machine: bool) -> None:
    """Everything about one run, by id, beginning of id, or name."""
    from headway.views.watch import details

    site = this_site()
    with open_server(site) as server:
        seen, record = _found(site, server, run)
        view = details(site, seen, record, ui_url(server))
    if machine:
        print_json(view)
        return
    say(f"{view['name']}  {view['state']}  attempt {view['attempt']}")
    say(_standing(view))
    if record is not None:
        _print_story(site, record)
    say(view["url"])


def _standing(view: dict[str, Any]) -> str:
    """How a run stands, in one line: how it ended, what it waits for, or how far it is."""
    from headway.units import format_duration

    if view["exit"]:
        return str(view["exit"]["message"])
    if view.get("waiting"):
        line = view["waiting"]
        return f"{line['reason']}; number {line['position']} in line, start {_when(line)}"
    if view["state"] != "Running" or "progress" not in view:
        return str(view["reason"])
    seen = view["progress"]
    done = seen["iteration"] if seen["iteration"] is not None else seen["epoch"]
    parts = (
        [] if done is None else [f"at {done:g}" + (f" of {seen['total']}" if seen["total"] else "")]
    )
    parts += [f"{name} {value:.4g}" for name, value in list(seen["metrics"].items())[:3]]
    if seen["remaining_s"] is not None:
        parts.append(f"{format_duration(seen['remaining_s'])} left")
    return ", ".join(parts) or "no progress has been read from its log yet"


def _print_story(site: "Site", record: "RunRecord") -> None:
    """The sections that the run's page shows too."""
    from headway.views.show import story
    from headway.views.watch import past_of

    for section in story(past_of(site, record)):
        click.echo(f"\n{section.title}")
        print_table(list(section.columns), [list(row) for row in section.rows])


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@as_json
def logs(run: str, follow: bool, machine: bool) -> None:
    """Print what the training program wrote.

    What would steer the terminal is left out, colours only where there is none. With --json it is
    whole.
    """
    from headway.views.watch import log_pieces

    site = this_site()
    with open_server(site) as server:
        seen, _ = _found(site, server, run)
        pieces = log_pieces(site, server, seen, follow=follow)
        if machine:
            text = b"".join(pieces).decode(errors="replace")
            print_json({"run_id": seen.run_id, "log": text})
            return
        clean = LogText(colours=sys.stdout.isatty())
        for piece in pieces:
            click.echo(clean.feed(piece), nl=False)
        click.echo(clean.rest(), nl=False)


@click.command()
@click.argument("run")
@as_json
def cancel(run: str, machine: bool) -> None:
    """End a run; its container gets its grace time."""
    from headway.gateway.submit import os_user
    from headway.model.run import CANCELLED_BY

    site = this_site()
    with open_server(site) as server:
        seen, _ = _found(site, server, run)
        state = server.cancel(seen.run_id, f"{CANCELLED_BY}{os_user()} (headway cancel)")
    if machine:
        print_json({"run_id": seen.run_id, "state": state})
    else:
        say(f"{seen.name}: {state}")


@click.command()
@as_json
def queue(machine: bool) -> None:
    """Who waits, for what, in which order."""
    from headway.views.watch import line_views

    views = line_views(this_site())
    if machine:
        print_json(views)
    elif not views:
        click.echo("nobody waits")
    else:
        print_table(
            ["#", "run", "name", "owner", "team", "expected start", "waits because it"],
            [
                [
                    str(v["position"]),
                    v["run_id"][:8],
                    v["name"],
                    v["owner"] or "unknown",
                    v["team"],
                    _when(v),
                    v["reason"],
                ]
                for v in views[:_SHOWN]
            ],
        )
        if len(views) > _SHOWN:
            click.echo(f"… and {len(views) - _SHOWN} more; `headway queue --json` has all of them")


_SHOWN = 100


def _when(view: dict[str, Any]) -> str:
    """When a run that waits is expected to start, by this terminal's clock."""
    from headway.clock import SystemClock
    from headway.views.documents import start_text

    return start_text(view, SystemClock().now().astimezone())


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text, not markup: a name such as "[red]" is shown as it is.
        table.add_row(*(Text(plain(cell)) for cell in row))
    # Whoever reads from a pipe wants whole lines, not those of a terminal of 80 columns.
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)


_PIPE_COLUMNS = 1000


COMMANDS = (submit, runs, show, logs, cancel, queue)
