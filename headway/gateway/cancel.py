"""Cancelling a run where no Prefect server answers: the ledger is enough for that."""

from contextlib import suppress

from headway.errors import LeaseLost
from headway.ledger import Ledger
from headway.model.run import Exit, ExitKind, Measurement, cancelled_by

_TRIES = 5
"""The run may be granted, requeued or released between the look and the write."""


def cancel_in_ledger(ledger: Ledger, run_id: str, message: str) -> Exit:
    """End a run as cancelled; the first end counts.

    The janitor of the run's node stops its container, and tells Prefect as soon as that answers.

    Args:
        ledger: The site's.
        run_id: A run that a worker has seen.
        message: Says who asked.

    Returns:
        How the run has ended, which may have happened meanwhile.

    Raises:
        LeaseLost: It changed hands between each look and the write after it.
    """
    exit_ = Exit(ExitKind.CANCELLED, None, cancelled_by(message))
    for _ in range(_TRIES - 1):
        with suppress(LeaseLost):
            return _end(ledger, run_id, exit_)
    return _end(ledger, run_id, exit_)


def _end(ledger: Ledger, run_id: str, exit_: Exit) -> Exit:
    fence = ledger.runs.get(run_id).fence(ledger.leases.of_run(run_id))
    return ledger.runs.finish(fence, exit_, Measurement())
