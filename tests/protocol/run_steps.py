"""The steps that change one run: of worker, flow, guard, container, janitor, user.

`run_steps` yields every step that is possible for a run on its own. Whether the
node's machine is awake, whether the node is a member of the site, and whether it
has room is asked by `protocol.model`, which knows the nodes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.values import (
    ACTIVE,
    BEGUN,
    CANCELLED,
    CANCELLING,
    CLAIMED,
    CREATED,
    EMPTY,
    ENDED,
    EXITED,
    FOLLOWING,
    LEAVING,
    LIVE,
    LOST,
    OK,
    RUNNING,
    SCHEDULED,
    STARTING,
    TAKEN,
    WAITING,
    Box,
    Cell,
    Flow,
    Lease,
    Row,
    Rules,
)

ANYWHERE = -1
"""The node of a step that no node's state keeps from happening."""


class Violation(Exception):
    """A step that must never be possible was carried out."""


class Step(NamedTuple):
    """One step of one run."""

    action: str
    node: int
    row: Row
    """The run afterwards."""
    lost: bool = False
    """Committed, but the caller was told that it failed."""


def run_steps(row: Row, rules: Rules) -> Iterator[Step]:
    """Every step of a run that is possible where its node is awake."""
    for node, cell in enumerate(row.cells):
        yield from _admit(row, node)
        if cell.flow is not None:
            yield from _flow(row, node, cell.flow, cell.box, rules)
        if cell.box is not None:
            yield from _container(row, node, cell.box, rules)
        yield from _janitor(row, node, cell, rules)
        yield from _renew(row, node, cell, rules)
    if rules.told_to_prefect:
        yield from _prefect(row, rules)


def put(row: Row, node: int, cell: Cell) -> Row:
    """*row* with *cell* on *node*."""
    cells = list(row.cells)
    cells[node] = cell
    return row._replace(cells=tuple(cells))


def without_lease(row: Row) -> Row:
    """*row* with its lease released: whoever remembers its token holds nothing any more."""
    cells = tuple(
        cell._replace(flow=cell.flow._replace(holds=False)) if cell.flow else cell
        for cell in row.cells
    )
    return row._replace(lease=None, cells=cells)


def requeued(row: Row, rules: Rules) -> Row:
    """The attempt has failed: the next one waits, or the run has ended."""
    if row.attempt < rules.attempts:
        return row._replace(state=WAITING, attempt=row.attempt + 1)
    return ended(row, LOST)


def ended(row: Row, end: str) -> Row:
    """The run has ended so."""
    return row._replace(state=ENDED, end=end, told=False)


def _flow_to(row: Row, node: int, flow: Flow | None) -> Row:
    return put(row, node, row.cells[node]._replace(flow=flow))


def _box_to(row: Row, node: int, box: Box | None) -> Row:
    return put(row, node, row.cells[node]._replace(box=box))


def _admit(row: Row, node: int) -> Iterator[Step]:
    """The worker claims a waiting run; a flow process is on its way unless the answer is lost."""
    if row.state != WAITING or row.lease is not None or row.prefect == CANCELLING:
        return
    if row.cells[node].flow is not None:
        return  # the node's lock of the run is held by its last flow process
    claimed = row._replace(state=CLAIMED, lease=Lease(node, row.attempt, 0, 2))
    yield Step("admit", node, _flow_to(claimed, node, Flow(row.attempt, True, STARTING)))
    yield Step("admit", node, claimed, lost=True)


def _passes(row: Row, flow: Flow, rules: Rules) -> bool:
    """Whether the ledger accepts a write of *flow* for its attempt."""
    current = flow.attempt == row.attempt
    if rules.fence_token and not flow.holds:
        return False
    if rules.fence_attempt and not current:
        return False
    if not (flow.holds and current):
        raise Violation(f"a flow of attempt {flow.attempt} wrote to attempt {row.attempt}")
    return True


def _flow(row: Row, node: int, flow: Flow, box: Box | None, rules: Rules) -> Iterator[Step]:
    own = box if box is not None and box.attempt == flow.attempt else None
    yield Step("flow dies", node, _flow_to(row, node, None))
    match flow.phase:
        case "starting":
            yield from _take_up(row, node, flow, rules)
        case "taken":
            yield from _begin(row, node, flow, box, rules)
            yield from _give_back(row, node, flow, box, rules)
        case "begun" if own is not None and own.state == CREATED:
            running = _box_to(row, node, own._replace(state=LIVE))
            yield Step("start", node, _flow_to(running, node, flow._replace(phase=FOLLOWING)))
        case "begun" | "following" if own is None:
            yield from _requeue(row, node, flow, rules)
        case "begun":  # another process of the attempt started it
            yield Step("follow", node, _flow_to(row, node, flow._replace(phase=FOLLOWING)))
        case "following" if own is not None and own.state == EXITED:
            yield from _finish(row, node, flow, rules)
        case "leaving":
            yield from _leave(row, node, flow, own, rules)


def _take_up(row: Row, node: int, flow: Flow, rules: Rules) -> Iterator[Step]:
    if row.state not in (CLAIMED, RUNNING) or not _passes(row, flow, rules):
        yield Step("flow leaves", node, _flow_to(row, node, None))
        return
    assert row.lease is not None
    taken = row._replace(lease=row.lease._replace(claim=0))
    if row.prefect == SCHEDULED and rules.told_to_prefect:
        taken = taken._replace(prefect=ACTIVE)
    yield Step("take up", node, _flow_to(taken, node, flow._replace(phase=TAKEN)))
    if taken != row:
        yield Step("take up", node, taken, lost=True)


def _give_back(row: Row, node: int, flow: Flow, box: Box | None, rules: Rules) -> Iterator[Step]:
    """Not now after all, by the live readings of the node."""
    if box is not None or row.state != CLAIMED or not _passes(row, flow, rules):
        return
    back = without_lease(row._replace(state=WAITING))
    yield Step("give back", node, _flow_to(back, node, None))
    yield Step("give back", node, back, lost=True)


def _begin(row: Row, node: int, flow: Flow, box: Box | None, rules: Rules) -> Iterator[Step]:
    """Create the container, or find the attempt's, and ask the ledger whether it may start."""
    if box is not None and box.attempt != flow.attempt:
        return  # of an attempt before; the janitor removes it first
    if row.state not in (CLAIMED, RUNNING) or not _passes(row, flow, rules):
        yield Step("begin refused", node, _flow_to(row, node, flow._replace(phase=LEAVING)))
        return
    made = row if box is not None else _box_to(row, node, Box(flow.attempt, CREATED, 0))
    begun = made._replace(state=RUNNING)
    if begun.lease is not None and rules.begin_renews:
        begun = begun._replace(lease=begun.lease._replace(age=0))
    yield Step("begin", node, _flow_to(begun, node, flow._replace(phase=BEGUN)))
    if box is None:
        yield Step("create", node, made)
    if begun != made:
        yield Step("begin", node, begun, lost=True)


def _finish(row: Row, node: int, flow: Flow, rules: Rules) -> Iterator[Step]:
    left = flow._replace(phase=LEAVING)
    over = row.state == ENDED and rules.first_end_counts
    if over or row.state == WAITING or not _passes(row, flow, rules):
        yield Step("finish refused", node, _flow_to(row, node, left))
        return
    over_now = row._replace(state=ENDED, end=OK, told=row.told and row.state == ENDED)
    yield Step("finish", node, _flow_to(over_now, node, left))
    if over_now != row:
        yield Step("finish", node, over_now, lost=True)


def _requeue(row: Row, node: int, flow: Flow, rules: Rules) -> Iterator[Step]:
    """Its container is gone without an exit code."""
    left = flow._replace(phase=LEAVING)
    if row.state == ENDED or not _passes(row, flow, rules):
        yield Step("requeue refused", node, _flow_to(row, node, left))
        return
    again = requeued(row, rules)
    yield Step("requeue", node, _flow_to(again, node, left))
    yield Step("requeue", node, again, lost=True)


def _leave(row: Row, node: int, flow: Flow, own: Box | None, rules: Rules) -> Iterator[Step]:
    """Container first, then the lease, then the process."""
    if own is not None:
        yield Step("remove container", node, _box_to(row, node, None))
    if own is None or not rules.container_first:
        if flow.holds or not rules.fence_release:
            if not flow.holds and row.lease is not None:
                raise Violation("a flow released the lease of another claim")
            yield Step("release", node, without_lease(_flow_to(row, node, None)))
            if row.lease is not None:
                yield Step("release", node, without_lease(row), lost=True)
        elif own is None:
            yield Step("flow leaves", node, _flow_to(row, node, None))


def _container(row: Row, node: int, box: Box, rules: Rules) -> Iterator[Step]:
    if box.state == LIVE:
        yield Step("program ends", node, _box_to(row, node, box._replace(state=EXITED)))
    killed = box.state == LIVE or (box.state == CREATED and rules.guard_kills_created)
    if rules.guard_kills and killed and box.unrenewed >= rules.guard_limit:
        yield Step("guard kills", node, _box_to(row, node, None))


def _renew(row: Row, node: int, cell: Cell, rules: Rules) -> Iterator[Step]:
    """The guard renews the lease of a container that it sees, or of a flow process."""
    lease, box, flow = row.lease, cell.box, cell.flow
    if lease is None or lease.node != node or row.state == ENDED:
        return
    seen = box is not None and box.attempt == lease.attempt and box.state != EXITED
    if not seen and not (flow is not None and flow.holds and flow.phase != STARTING):
        return
    renewed = row._replace(lease=lease._replace(age=0))
    if seen and box is not None:
        told = _box_to(renewed, node, box._replace(unrenewed=0))
        if told != row:
            yield Step("renew", node, told)
        if renewed != row:
            yield Step("renew", node, renewed, lost=True)
    elif renewed != row:
        yield Step("renew", node, renewed)


def _janitor(row: Row, node: int, cell: Cell, rules: Rules) -> Iterator[Step]:
    """The node's janitor, for what lies on its node."""
    lease, box = row.lease, cell.box
    here = lease if lease is not None and lease.node == node else None
    granted = row.state in (CLAIMED, RUNNING)
    if here is not None and granted and here.claim == 1 and rules.claims_end:
        yield Step("claim ends", node, without_lease(row._replace(state=WAITING)))
    if row.prefect == CANCELLING and row.state != ENDED and (here is not None or lease is None):
        yield Step("cancel", node, ended(row, CANCELLED))
    if box is not None and row.state == ENDED:
        yield Step("sweep", node, _box_to(row, node, None))
    if cell.flow is not None:
        return
    if here is not None and granted and here.claim == 0:
        if box is None:
            yield Step("janitor requeues", node, requeued(row, rules))
        flow = Flow(here.attempt, True, TAKEN)
        yield Step("flow restarts", node, _flow_to(row, node, flow))
    stands = here is not None and granted
    if box is not None and not stands and row.state != ENDED:
        yield Step("sweep", node, _box_to(row, node, None))
    if here is not None and not granted and (box is None or not rules.container_first):
        yield Step("janitor releases", node, without_lease(row))


def _prefect(row: Row, rules: Rules) -> Iterator[Step]:
    """What users ask for, and what Prefect is told. By the worker of any node."""
    if row.prefect in (SCHEDULED, ACTIVE) and not row.told:
        yield Step("user cancels", ANYWHERE, row._replace(prefect=CANCELLING))
    if row.state == WAITING and row.prefect == ACTIVE:
        yield Step("reschedule", ANYWHERE, row._replace(prefect=SCHEDULED))
    if row.state != ENDED:
        return
    if not row.told:
        if row.prefect != row.end:
            yield Step(
                "tell", ANYWHERE, row._replace(prefect=row.end, told=not rules.told_when_seen)
            )
            if not rules.told_when_seen:  # the answer was an error, and it counts as told
                yield Step("tell", ANYWHERE, row._replace(told=True))
        else:
            yield Step("see", ANYWHERE, row._replace(told=True))
    elif row.prefect == SCHEDULED:
        if row.lease is None:
            new = Row(WAITING, row.attempt + 1, "", SCHEDULED, False, None, row.cells)
            yield Step("retry", ANYWHERE, new)
    elif row.attempt < rules.attempts:
        yield Step("user retries", ANYWHERE, row._replace(prefect=SCHEDULED))


def tidy(row: Row, rules: Rules) -> Row:
    """*row* without what makes no difference any more.

    A flow whose every write is refused, and which has no container, can only leave.
    """
    if not (rules.fence_token and rules.fence_attempt and rules.fence_release):
        return row
    cells = []
    for flow, box in row.cells:
        if box is not None and box.state == EXITED:
            box = box._replace(unrenewed=0)  # noqa: PLW2901
        own = box is not None and flow is not None and box.attempt == flow.attempt
        if flow is not None and not flow.holds and not own:
            flow = None  # noqa: PLW2901
        cells.append(Cell(flow, box))
    return row._replace(cells=tuple(cells), end=row.end if rules.told_to_prefect else "")


def is_over(row: Row, rules: Rules) -> bool:
    """The run has ended, Prefect knows it, and nothing of it is left anywhere."""
    clean = row.lease is None and all(cell == EMPTY for cell in row.cells)
    heard = row.told and row.prefect == row.end
    return row.state == ENDED and clean and (heard or not rules.told_to_prefect)
