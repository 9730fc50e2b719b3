"""Commands that change a run: cancel, retry."""

from typing import TYPE_CHECKING

import click

from headway.cli.inputs import open_server, this_site
from headway.cli.output import as_json, print_json, say
from headway.cli.runs import find_run

if TYPE_CHECKING:
    from headway.errors import SiteUnreachable
    from headway.ledger.records import RunRecord
    from headway.site import Site

_TOLD_WITHIN_S = 15.0
"""The janitor of the run's node looks every five seconds."""


@click.command()
@click.argument("run")
@as_json
def cancel(run: str, machine: bool) -> None:
    """End a run; its container gets its grace time.

    Of several runs of one name the newest that has not ended.
    """
    from headway.errors import SiteRefused, SiteUnreachable
    from headway.gateway.submit import os_user
    from headway.model.run import CANCELLED_BY
    from headway.prefect.client import FINAL

    site, message = this_site(), f"{CANCELLED_BY}{os_user()} (headway cancel)"
    try:
        with open_server(site) as server:
            seen, record = find_run(site, server, run, still_going=True)
            over = seen.state_type in FINAL
            state = seen.state_name if over else server.cancel(seen.run_id, message)
    except SiteRefused:
        raise  # the ledger is no way round the door
    except SiteUnreachable as error:
        _cancel_without_prefect(site, run, message, error, machine=machine)
        return
    if machine:
        print_json({"run_id": seen.run_id, "state": state})
    elif over:
        _say_over(seen.name, state, record)
    else:
        say(f"{seen.name}: {state}")


def _cancel_without_prefect(
    site: "Site", run: str, message: str, away: "SiteUnreachable", *, machine: bool
) -> None:
    """End the run in the ledger: the janitor of its node asks nobody else.

    Raises:
        SiteUnreachable: No worker has seen such a run; only Prefect can tell.
    """
    from headway.errors import RunUnknown
    from headway.gateway.cancel import cancel_in_ledger
    from headway.model.run import RunState
    from headway.views.run_document import ledger_state

    try:
        record = site.ledger.runs.find(run, still_going=True)
    except RunUnknown:
        record = None
    if record is None:
        raise away
    over = record.state is RunState.ENDED
    if not over:
        cancel_in_ledger(site.ledger, record.run_id, message)
    state = ledger_state(record) if over else "Cancelling"
    if machine:
        print_json({"run_id": record.run_id, "state": state})
    elif over:
        _say_over(record.name, state, record)
    else:
        say(
            f"{record.name}: {state}. The Prefect server does not answer, so the ledger alone "
            "knows of it: the run is stopped, and Prefect says so when it is back"
        )


def _say_over(name: str, state: str, record: "RunRecord | None") -> None:
    how = f": {record.exit.message}" if record is not None and record.exit else ""
    say(f"{name}: {state}{how}; it had ended before, nothing was cancelled")


@click.command()
@click.argument("run")
@as_json
def retry(run: str, machine: bool) -> None:
    """Try a run that has ended once more, from its checkpoint, however it ended."""
    from headway.gateway.submit import os_user

    site = this_site()
    with open_server(site) as server:
        seen, record = find_run(site, server, run)
        if record is not None:
            _check_ended(site, record)
        state = server.retry(seen.run_id, f"retried by OS user {os_user()} (headway retry)")
    attempt = record.attempt + 1 if record is not None else 1
    if machine:
        print_json({"run_id": seen.run_id, "state": state, "attempt": attempt})
    else:
        say(f"{seen.name}: {state}, as attempt {attempt}")


def _check_ended(site: "Site", record: "RunRecord") -> None:
    """Wait until Prefect knows how the run ended: earlier, a retry would be taken for a mistake.

    Raises:
        InvalidInput: It has not ended, is a part of a gang, or nobody has told Prefect.
    """
    from headway.errors import InvalidInput
    from headway.model.run import RunState

    if record.gang_id is not None:
        raise InvalidInput("run", record.name, f"retry the run that leads it: {record.gang_id}")
    end_s = site.clock.monotonic_s() + _TOLD_WITHIN_S
    while record.state is RunState.ENDED and record.told_end_at is None:
        if site.clock.monotonic_s() > end_s:
            raise InvalidInput(
                "run",
                record.name,
                "it has ended, but no worker has told Prefect so yet: see `headway nodes`, start "
                "its worker, and retry it then",
            )
        site.clock.sleep(0.5)
        record = site.ledger.runs.get(record.run_id)
    if record.state is not RunState.ENDED:
        raise InvalidInput(
            "run", record.name, f"it is {record.state.value}; only a run that has ended is retried"
        )


COMMANDS = (cancel, retry)
