"""What a node's janitor does about a run when ledger, process and container differ.

The ledger is the truth about runs and grants, the engine about containers; a flow process only
follows. So: what the ledger has ended, suspended or given to another attempt stops here; what
still runs is followed by a new flow process; what vanished goes back to the queue. What users
want, and what Prefect is told, is the scheduler's: `policy.agree`.
"""

import enum
from dataclasses import dataclass

from headway.model.run import GRANTED, ExitKind, RunState

MAX_FLOW_STARTS = 20
"""After so many flow processes for one run something is wrong with the run itself."""
MAX_FLOWS_OF_A_PROGRAM = 60
"""The same while its program runs well: each rests for up to a minute before it, so that takes
almost an hour, in which half a Prefect server, which breaks all of them, is mended."""
FLOW_STARTS_WITHIN_S = 3600.0
"""So long they are counted together: a run of weeks may well need more."""

_BY_OTHERS = frozenset({ExitKind.CANCELLED, ExitKind.INFRASTRUCTURE})
"""How a run ends that its own flow process did not end."""


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
    flow: FlowProcess = FlowProcess.NONE
    container: Container = Container.NONE
    has_lease: bool = False
    """On this node; of a waiting run, one that the attempt before has left behind."""
    flow_starts: int = 0
    attempts_left: bool = True
    is_rank: bool = False
    """Part of a gang: it never waits or begins again by itself."""
    exit_kind: ExitKind = ExitKind.OK
    """How it ended, if it has."""
    suspended: bool = False
    """It waits for its user to resume it."""
    overdue: bool = False
    """The deadline of its claim has passed, and no flow process has taken it up."""


class Action(enum.StrEnum):
    """One instruction to the janitor. They are carried out in the order given."""

    END_INFRASTRUCTURE = "end_infrastructure"
    """End the run in the ledger: the site failed it too often."""
    REQUEUE = "requeue"
    """Back to the queue as the next attempt."""
    GIVE_BACK = "give_back"
    """Back to the queue as the same attempt, which never started; with it goes the lease."""
    STOP_CONTAINER = "stop_container"
    """Stop with the job's grace time, then remove, and see that it is gone."""
    START_FLOW = "start_flow"
    """Start a flow process that goes on with the run's attempt."""
    END_FLOW = "end_flow"
    """Ask the flow process to leave: its run is no longer its own."""
    KILL_FLOW = "kill_flow"
    """Kill the flow process, which has begun nothing in all the time that it had."""
    RELEASE = "release"
    """Release lease, ports and staged copies; only after the container is gone."""


Actions = tuple[Action, ...]


def reconcile(seen: Situation) -> Actions:
    """What to do about one run. Empty when nothing differs.

    Nothing is released while its container may live: a release follows `STOP_CONTAINER`, or there
    is no container and no flow process that could still make one.
    """
    if seen.state in GRANTED:
        return _granted(seen)
    # Before its container is there, as while it copies data, nothing tells its flow that the run
    # was ended in Prefect, or suspended; its clean-up releases the lease.
    ended = seen.state is RunState.ENDED and seen.exit_kind in _BY_OTHERS
    unwanted = seen.suspended or ended
    idle = seen.flow is FlowProcess.ALIVE and seen.container is Container.NONE
    unaware = unwanted and idle and seen.has_lease
    return (*_free(seen), *((Action.END_FLOW,) if unaware else ()))


def _free(seen: Situation) -> Actions:
    """Stop what is left of the attempt and release what it holds; a flow process cleans up."""
    if seen.flow is FlowProcess.NONE:
        stop = (Action.STOP_CONTAINER,) if seen.container is not Container.NONE else ()
        return (*stop, *((Action.RELEASE,) if stop or seen.has_lease else ()))
    # What has exited is being measured by the flow, which removes it then.
    return (Action.STOP_CONTAINER,) if seen.container is Container.LIVE else ()


def _granted(seen: Situation) -> Actions:
    if seen.flow is FlowProcess.NONE:
        return _resume(seen)
    late = seen.overdue and seen.state is RunState.CLAIMED and not seen.is_rank
    if late and seen.container is Container.NONE:
        # One that is alive and hangs would keep every later one from the run.
        kill = (Action.KILL_FLOW,) if seen.flow is FlowProcess.ALIVE else ()
        return (Action.GIVE_BACK, *kill)
    return ()


def _resume(seen: Situation) -> Actions:
    """A granted run whose flow process is gone."""
    live = seen.container is Container.LIVE
    if seen.flow_starts >= (MAX_FLOWS_OF_A_PROGRAM if live else MAX_FLOW_STARTS):
        return (Action.END_INFRASTRUCTURE, *_free(seen))
    if seen.container is not Container.NONE:
        return (Action.START_FLOW,)
    if seen.state is RunState.CLAIMED and not seen.is_rank:
        return (Action.GIVE_BACK,)
    if seen.attempts_left:
        return (Action.REQUEUE, *_free(seen))
    return (Action.END_INFRASTRUCTURE, *_free(seen))
