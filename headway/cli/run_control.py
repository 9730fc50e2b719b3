"""Commands that change a run: cancel, retry."""

from typing import TYPE_CHECKING, Any

import click

from headway.cli.arrays import if_array, told_cancelled, told_retried
from headway.cli.completion import RUN
from headway.cli.inputs import open_client
from headway.cli.output import as_json, print_json, say

if TYPE_CHECKING:
    from headway.client import Client

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


@click.command()
@click.argument("run", type=RUN)
@as_json
def cancel(run: str, machine: bool) -> None:
    """End a run, or all members of an array; containers get their grace time.

    Of several runs of one name the newest that has not ended.
    """
    from headway.errors import GatewayUnreachable

    try:
        with open_client() as client:
            if (view := if_array(client.cancel_array, run)) is not None:
                print_json(view) if machine else say(told_cancelled(view))
                return
            done = client.cancel(run)
    except GatewayUnreachable:
        click.echo(_NO_GATEWAY, err=True)
        raise
    if machine:
        print_json({"run_id": done["run_id"], "state": done["state"]})
    elif done["over"]:
        how = f": {done['message']}" if done["message"] else ""
        say(f"{done['name']}: {done['state']}{how}; it had ended before, nothing was cancelled")
    elif done["told"]:
        say(f"{done['name']}: {done['state']}")
    else:
        say(f"{done['name']}: {done['state']}. {_AWAY}")


@click.command()
@click.argument("run", type=RUN)
@as_json
def retry(run: str, machine: bool) -> None:
    """Try a run that has ended once more, from its checkpoint, however it ended.

    Of an array all members that did not end well.
    """
    with open_client() as client:
        if (view := if_array(client.retry_array, run)) is not None:
            print_json(view) if machine else say(told_retried(view))
            return
        done = _retried(client, run)
    if machine:
        print_json({name: done[name] for name in ("run_id", "state", "attempt")})
    else:
        say(f"{done['name']}: {done['state']}, as attempt {done['attempt']}")


def _retried(client: "Client", run: str) -> dict[str, Any]:
    """Wait until Prefect knows how the run ended: earlier, a retry would be taken for a mistake."""
    from headway.clock import SystemClock
    from headway.errors import EndUntold

    clock = SystemClock()
    end_s = clock.monotonic_s() + _TOLD_WITHIN_S
    while True:
        try:
            return client.retry(run)
        except EndUntold:
            if clock.monotonic_s() > end_s:
                raise
            clock.sleep(0.5)


COMMANDS = (cancel, retry)
