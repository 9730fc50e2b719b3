"""Commands that change a run: cancel, retry."""

from typing import TYPE_CHECKING

import click

from headway.cli.inputs import open_server, this_site
from headway.cli.output import as_json, print_json, say
from headway.cli.runs import find_run

if TYPE_CHECKING:
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
    from headway.gateway.submit import os_user
    from headway.model.run import CANCELLED_BY
    from headway.prefect.client import FINAL

    site = this_site()
    with open_server(site) as server:
        seen, record = find_run(site, server, run, still_going=True)
        state, over = seen.state_name, seen.state_type in FINAL
        if not over:
            state = server.cancel(seen.run_id, f"{CANCELLED_BY}{os_user()} (headway cancel)")
    if machine:
        print_json({"run_id": seen.run_id, "state": state})
    elif over:
        how = f": {record.exit.message}" if record is not None and record.exit else ""
        say(f"{seen.name}: {state}{how}; it had ended before, nothing was cancelled")
    else:
        say(f"{seen.name}: {state}")


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
