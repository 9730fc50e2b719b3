"""What a node's janitor does about a run when ledger, Prefect, process and container differ.

The ledger is the truth about runs and grants, the engine about containers,
Prefect about what the user wants; a flow process only follows. So: what the
user ended, suspended or wants again is so in the ledger first; what still runs
is followed by a new flow process; what vanished goes back to the queue; and
Prefect is told until it was seen in the state that the ledger calls for.
"""

import enum
from dataclasses import dataclass

from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState

MAX_FLOW_STARTS = 20
"""After so many flow processes for one run something is wrong with the run itself."""
FLOW_STARTS_WITHIN_S = 3600.0
"""So long they are counted together: a run of weeks may well need more."""


_UNWANTED = frozenset(
    {
        PrefectView.CANCELLING,
        PrefectView.CANCELLED,
        PrefectView.FAILED,
        PrefectView.COMPLETED,
        PrefectView.MISSING,
    }
)
_TO_BE_SUSPENDED = frozenset({PrefectView.PAUSED, PrefectView.SUSPENDED})
_WRONG_OF_RUNNING = frozenset({PrefectView.CRASHED, PrefectView.SCHEDULED, PrefectView.PENDING})


def end_seen(exit_kind: ExitKind) -> PrefectView:
    """What Prefect says of a run that has ended so, once it was told."""
    if exit_kind is ExitKind.OK:
        return PrefectView.COMPLETED
    return PrefectView.CANCELLED if exit_kind is ExitKind.CANCELLED else PrefectView.FAILED


class FlowProcess(enum.StrEnum):
    """The flow process of a run on this node."""

    NONE = "none"
    STARTING = "starting"
    """This worker is just starting one; it may come or not."""
    ALIVE = "alive"
    """It holds the run's lock."""


class Container(enum.StrEnum):
    """The container of the attempt that has the lease, else of the current one."""

    NONE = "none"
    EXITED = "exited"
    LIVE = "live"
    """Created or running."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything known of one run of this node at one moment."""

    state: RunState
    prefect: PrefectView
    flow: FlowProcess = FlowProcess.NONE
    container: Container = Container.NONE
    has_lease: bool = False
    """On this node; of a waiting run, one that the attempt before has left behind."""
    flow_starts: int = 0
    attempts_left: bool = True
    is_rank: bool = False
    """Part of a gang: it never waits or begins again by itself."""
    leads_gang: bool = False
    exit_kind: ExitKind = ExitKind.OK
    """How it ended, if it has."""
    told: bool = False
    """Prefect was seen in the state that its end calls for."""
    suspended: bool = False
    """It waits for its user to resume it."""
    overdue: bool = False
    """The deadline of its claim has passed, and no flow process has taken it up."""


class Action(enum.StrEnum):
    """One instruction to the janitor. They are carried out in the order given."""

    END_CANCELLED = "end_cancelled"
    """End the run in the ledger as cancelled."""
    END_BROKEN = "end_broken"
    """End the run in the ledger: its flow broke."""
    END_INFRASTRUCTURE = "end_infrastructure"
    """End the run in the ledger: the site failed it too often."""
    REQUEUE = "requeue"
    """Back to the queue as the next attempt."""
    GIVE_BACK = "give_back"
    """Back to the queue as the same attempt, which never started; with it goes the lease."""
    SUSPEND = "suspend"
    """Back to the queue as the next attempt, which waits until it is resumed."""
    RESUME = "resume"
    """It may be planned again."""
    RETRY = "retry"
    """A new attempt of a run that has ended."""
    STOP_CONTAINER = "stop_container"
    """Stop with the job's grace time, then remove, and see that it is gone."""
    END_FLOW = "end_flow"
    """Ask the flow process to leave: its run is no longer its own."""
    KILL_FLOW = "kill_flow"
    """Kill the flow process, which has begun nothing in all the time that it had."""
    RELEASE = "release"
    """Release lease, ports and staged copies; only after the container is gone."""
    NOTE_TOLD = "note_told"
    """Note that Prefect was seen in the state that the run's end calls for."""
    RESCHEDULE = "reschedule"
    """Make Prefect's state SCHEDULED, so that a worker starts a flow process again."""
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
        Action.RESCHEDULE,
        Action.SET_RUNNING,
        Action.SET_SUSPENDED,
        Action.REFUSE_SUSPENSION,
        Action.SET_FINAL,
    }
)
"""Instructions that change Prefect's state; the ledger is read again right before each."""

Actions = tuple[Action, ...]


def reconcile(seen: Situation) -> Actions:
    """What to do about one run. Empty when nothing differs.

    Nothing is ever started here. Nothing is released while its container may
    live: a release follows `STOP_CONTAINER`, or there is no container and no
    flow process that could still make one.
    """
    if seen.state is RunState.ENDED:
        return _after_the_end(seen)
    if seen.prefect is PrefectView.UNKNOWN:
        # What an attempt before has left goes, whatever Prefect says: `down` stops the server.
        return _free(seen) if seen.state is RunState.WAITING else ()
    if seen.prefect in _UNWANTED and not _suspension_lost(seen):
        return _end_what_nobody_wants(seen)
    if seen.state is RunState.WAITING:
        return _waiting(seen)
    return _suspend(seen) if seen.prefect in _TO_BE_SUSPENDED else _granted(seen)


def _suspension_lost(seen: Situation) -> bool:
    """The flow that it was taken from broke, or Prefect's own limit of a pause has passed."""
    return seen.suspended and seen.prefect in {PrefectView.CRASHED, PrefectView.FAILED}


def _free(seen: Situation) -> Actions:
    """Stop what is left of the attempt and release what it holds; a flow process cleans up."""
    if seen.flow is FlowProcess.NONE:
        stop = (Action.STOP_CONTAINER,) if seen.container is not Container.NONE else ()
        return (*stop, *((Action.RELEASE,) if stop or seen.has_lease else ()))
    # What has exited is being measured by the flow, which removes it then.
    return (Action.STOP_CONTAINER,) if seen.container is Container.LIVE else ()


def _take_from_flow(seen: Situation) -> Actions:
    """The same of a run that was just taken from its flow, which may follow nothing yet."""
    idle = seen.flow is FlowProcess.ALIVE and seen.container is Container.NONE
    return (*_free(seen), *((Action.END_FLOW,) if idle else ()))


def _reschedule(seen: Situation) -> Actions:
    return () if seen.prefect is PrefectView.SCHEDULED else (Action.RESCHEDULE,)


def _after_the_end(seen: Situation) -> Actions:
    if seen.flow is FlowProcess.NONE:
        return (*_free(seen), *_tell_the_end(seen))
    # The flow also tells Prefect itself. Before its container is there, as while it copies data,
    # nothing tells it that somebody else has ended its run; its clean-up releases the lease.
    unaware = seen.exit_kind is ExitKind.CANCELLED and seen.has_lease
    return _take_from_flow(seen) if unaware else _free(seen)


def _tell_the_end(seen: Situation) -> Actions:
    if seen.prefect is PrefectView.UNKNOWN:
        return ()
    if seen.prefect in {PrefectView.MISSING, end_seen(seen.exit_kind)}:
        return () if seen.told else (Action.NOTE_TOLD,)
    if seen.told and seen.prefect is PrefectView.SCHEDULED and not seen.is_rank:
        return (Action.RETRY,)
    return (Action.SET_FINAL,)


def _end_what_nobody_wants(seen: Situation) -> Actions:
    end, kind = Action.END_CANCELLED, ExitKind.CANCELLED
    if seen.prefect is PrefectView.FAILED:
        end, kind = Action.END_BROKEN, ExitKind.INFRASTRUCTURE
    agrees = seen.prefect in {PrefectView.MISSING, end_seen(kind)}
    tell = () if agrees or seen.flow is not FlowProcess.NONE else (Action.SET_FINAL,)
    if seen.state is RunState.WAITING:
        # What it holds is its last attempt's: that goes first, the end is the next one's.
        return (*_free(seen), end, *tell)
    return (end, *_take_from_flow(seen), *tell)


def _waiting(seen: Situation) -> Actions:
    if seen.flow is not FlowProcess.NONE:
        return _free(seen)  # that of its last attempt, which is leaving
    if seen.prefect in _TO_BE_SUSPENDED:
        mark = () if seen.suspended else (Action.SUSPEND,)
        told = seen.prefect is PrefectView.SUSPENDED and seen.suspended
        return (*_free(seen), *mark, *(() if told else (Action.SET_SUSPENDED,)))
    if _suspension_lost(seen):
        return (*_free(seen), Action.SET_SUSPENDED)
    # A lease here is the last attempt's: with it the run would never be admitted again.
    resume = (Action.RESUME,) if seen.suspended else ()
    return (*_free(seen), *resume, *_reschedule(seen))


def _suspend(seen: Situation) -> Actions:
    """A granted run that its user wants to suspend."""
    if seen.is_rank or seen.leads_gang:
        return (Action.REFUSE_SUSPENSION,)
    if seen.container is Container.EXITED:  # its program has ended: only its end is missing
        return _granted(seen)
    return (Action.SUSPEND, Action.SET_SUSPENDED, *_take_from_flow(seen))


def _granted(seen: Situation) -> Actions:
    if seen.flow is FlowProcess.NONE:
        return _resume(seen)
    late = seen.overdue and seen.state is RunState.CLAIMED and not seen.is_rank
    if late and seen.container is Container.NONE:
        # One that is alive and hangs would keep every later one from the run.
        kill = (Action.KILL_FLOW,) if seen.flow is FlowProcess.ALIVE else ()
        return (Action.GIVE_BACK, *kill, *_reschedule(seen))
    if seen.flow is FlowProcess.STARTING:
        return ()
    # Its flow goes on, whatever was written over its state since.
    wrong = seen.prefect in _WRONG_OF_RUNNING
    begun = seen.state is RunState.RUNNING
    return (Action.SET_RUNNING,) if wrong and begun else ()


def _resume(seen: Situation) -> Actions:
    """A granted run whose flow process is gone."""
    if seen.flow_starts >= MAX_FLOW_STARTS:
        return (Action.END_INFRASTRUCTURE, *_free(seen), Action.SET_FINAL)
    if seen.container is not Container.NONE:
        return _reschedule(seen)
    if seen.state is RunState.CLAIMED and not seen.is_rank:
        return (Action.GIVE_BACK, *_reschedule(seen))
    if seen.attempts_left:
        return (Action.REQUEUE, *_free(seen), *_reschedule(seen))
    return (Action.END_INFRASTRUCTURE, *_free(seen), Action.SET_FINAL)
