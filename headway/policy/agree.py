"""What the scheduler does about a run when ledger and Prefect differ.

The ledger is the truth about runs and grants, Prefect about what the user wants. So: what the user
ended, suspended or wants again is so in the ledger first, from where the run's node hears of it;
and Prefect is told until it was seen in the state that the ledger calls for. What differs on a
node is the node's: `policy.reconcile`.
"""

import enum
from dataclasses import dataclass

from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState

_UNWANTED = frozenset(
    {
        PrefectView.CANCELLING,
        PrefectView.CANCELLED,
        PrefectView.FAILED,
        PrefectView.COMPLETED,
        PrefectView.MISSING,
    }
)
TO_BE_SUSPENDED = frozenset({PrefectView.PAUSED, PrefectView.SUSPENDED})
_SCHEDULED = frozenset({PrefectView.SCHEDULED, PrefectView.AWAITING})
_WRONG_OF_RUNNING = frozenset({PrefectView.CRASHED, PrefectView.PENDING, *_SCHEDULED})


def end_seen(exit_kind: ExitKind) -> PrefectView:
    """What Prefect says of a run that has ended so, once it was told."""
    if exit_kind is ExitKind.OK:
        return PrefectView.COMPLETED
    return PrefectView.CANCELLED if exit_kind is ExitKind.CANCELLED else PrefectView.FAILED


@dataclass(frozen=True, slots=True)
class Said:
    """What ledger and Prefect say of one run."""

    state: RunState
    prefect: PrefectView
    held: bool = False
    """A node that answers has its lease still: of a run that waits or has ended, it cleans up."""
    young: bool = False
    """It ended, or was granted, a moment ago: who did that tells Prefect."""
    program_over: bool = False
    """The program of its attempt has ended: only its end is missing."""
    is_rank: bool = False
    """Part of a gang: it never waits or begins again by itself."""
    leads_gang: bool = False
    exit_kind: ExitKind = ExitKind.OK
    """How it ended, if it has."""
    told: bool = False
    """Prefect was seen in the state that its end calls for, or its user has pressed Retry since."""
    suspended: bool = False
    """It waits for its user to resume it."""


class Change(enum.StrEnum):
    """One instruction to the scheduler. They are carried out in the order given."""

    END_CANCELLED = "end_cancelled"
    """End the run in the ledger as cancelled."""
    END_BROKEN = "end_broken"
    """End the run in the ledger: its flow broke."""
    SUSPEND = "suspend"
    """Back to the queue as the next attempt, which waits until it is resumed."""
    RESUME = "resume"
    """It may be planned again."""
    RETRY = "retry"
    """A new attempt of a run that has ended."""
    NOTE_TOLD = "note_told"
    """Note that Prefect was seen in the state that the run's end calls for."""
    RESCHEDULE = "reschedule"
    """Make Prefect's state SCHEDULED: it waits."""
    SET_PENDING = "set_pending"
    """Make Prefect's state PENDING: it was granted a place."""
    SET_RUNNING = "set_running"
    """Make Prefect's state RUNNING: the run's flow goes on."""
    SET_SUSPENDED = "set_suspended"
    """Make Prefect's state PAUSED without an end, and say what became of the container."""
    REFUSE_SUSPENSION = "refuse_suspension"
    """Make Prefect's state RUNNING, and say why the run cannot be suspended."""
    SET_FINAL = "set_final"
    """Make Prefect's state the one that the ledger's exit calls for."""


ON_PREFECT = frozenset(
    {
        Change.RESCHEDULE,
        Change.SET_PENDING,
        Change.SET_RUNNING,
        Change.SET_SUSPENDED,
        Change.REFUSE_SUSPENSION,
        Change.SET_FINAL,
    }
)
"""Instructions that change Prefect's state; the ledger is read again right before each."""

Changes = tuple[Change, ...]


def agree(said: Said) -> Changes:
    """What to do about one run. Empty when nothing differs.

    Nothing is concluded from a server's silence. What is left of an attempt is its node's: Prefect
    is told of what waits or has ended once that is gone.
    """
    if said.prefect is PrefectView.UNKNOWN:
        return ()
    if said.state is RunState.ENDED:
        return () if said.held else _tell_the_end(said)
    if said.prefect in _UNWANTED and not _suspension_lost(said):
        return (Change.END_BROKEN if said.prefect is PrefectView.FAILED else Change.END_CANCELLED,)
    if said.state is RunState.WAITING:
        return () if said.held else _waiting(said)
    return _suspend(said) if said.prefect in TO_BE_SUSPENDED else _granted(said)


def _suspension_lost(said: Said) -> bool:
    """The flow that it was taken from broke, or Prefect's own limit of a pause has passed.

    Or why it waited was written late.
    """
    lost = {PrefectView.CRASHED, PrefectView.FAILED, PrefectView.AWAITING}
    return said.suspended and said.prefect in lost


def _tell_the_end(said: Said) -> Changes:
    if said.prefect in {PrefectView.MISSING, end_seen(said.exit_kind)}:
        return () if said.told else (Change.NOTE_TOLD,)
    if said.told and said.prefect is PrefectView.SCHEDULED and not said.is_rank:
        return (Change.RETRY,)
    return () if said.young else (Change.SET_FINAL,)


def _waiting(said: Said) -> Changes:
    if said.prefect in TO_BE_SUSPENDED:
        mark = () if said.suspended else (Change.SUSPEND,)
        told = said.prefect is PrefectView.SUSPENDED and said.suspended
        return (*mark, *(() if told else (Change.SET_SUSPENDED,)))
    if _suspension_lost(said):
        return (Change.SET_SUSPENDED,)
    resume = (Change.RESUME,) if said.suspended else ()
    return (*resume, *(() if said.prefect in _SCHEDULED else (Change.RESCHEDULE,)))


def _suspend(said: Said) -> Changes:
    """A granted run that its user wants to suspend."""
    if said.is_rank or said.leads_gang:
        return (Change.REFUSE_SUSPENSION,)
    return () if said.program_over else (Change.SUSPEND, Change.SET_SUSPENDED)


def _granted(said: Said) -> Changes:
    # Its flow goes on, or its node starts one, whatever was written over its state since.
    if said.state is RunState.RUNNING:
        return (Change.SET_RUNNING,) if said.prefect in _WRONG_OF_RUNNING else ()
    return (Change.SET_PENDING,) if said.prefect in _SCHEDULED and not said.young else ()
