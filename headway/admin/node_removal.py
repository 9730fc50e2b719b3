"""Taking a node out of the site whose machine does not come back."""

import math
from collections.abc import Callable
from typing import NamedTuple

from headway.errors import InvalidInput
from headway.model.node import NodeState
from headway.node.janitor import Janitor
from headway.policy.guard import GuardTimes
from headway.scheduler.snapshot import is_lost
from headway.site import Site
from headway.this_node import os_user
from headway.units import format_duration


class Removed(NamedTuple):
    """What became of one run of the node."""

    run_id: str
    name: str
    then: str
    """In words, such as ``goes back to the queue as attempt 2``."""


def remove_node(
    site: Site,
    name: str,
    *,
    powered_off: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> list[Removed]:
    """Forget node *name*, release what it holds, end or requeue its runs.

    Safe to repeat: one that was interrupted goes on where it was.

    Args:
        site: The site.
        name: The node.
        powered_off: The operator knows that nothing runs there any more: nobody waits.
        say: Is told how long it waits.

    Raises:
        InvalidInput: There is no such node, or its worker or guard is alive.
    """
    record = site.ledger.nodes.get(name)
    held = site.ledger.runs.on_node(name) or site.ledger.leases.live(name)
    if record is None and not held:
        raise unknown_node(site, name)
    if record is not None and not is_lost(record, site.ledger.now()):
        raise InvalidInput(
            "node",
            name,
            "its worker reports, or did a minute ago; stop it with `headway node leave` there",
        )
    if record is not None:
        _take_out(site, name, powered_off=powered_off, say=say)
    site.ledger.node_logins.remove(name)
    pools = sorted(each.pool for each in site.ledger.engines.pools().values() if each.node == name)
    if pools:
        say(
            f"it was the submit host of {', '.join(pools)}: what waits or runs there "
            "stays so until `headway engine add` was typed on another one"
        )
    runs = site.ledger.runs.on_node(name)
    Janitor(site).abandon(name)
    return [Removed(run.run_id, run.name, _then(site, run.run_id)) for run in runs]


def _take_out(site: Site, name: str, *, powered_off: bool, say: Callable[[str], None]) -> None:
    """Take from the node all that it holds: what runs there is refused from then on."""
    if powered_off:
        site.ledger.nodes.remove(name, actor=os_user())
        return
    margin_s = GuardTimes(site.settings.lease_ttl_s).margin_s
    while True:
        wait_until_unheld(site, name, say)
        gone = site.ledger.nodes.remove(name, margin_s=margin_s, actor=os_user())
        if gone or site.ledger.nodes.get(name) is None:
            return


def unknown_node(site: Site, name: str) -> InvalidInput:
    """The error for a node *name* that the site does not have."""
    known = ", ".join(each.node.name for each in site.ledger.nodes.all()) or "none yet"
    return InvalidInput("node", name, f"give one of the site's nodes: {known}")


def _then(site: Site, run_id: str) -> str:
    run = site.ledger.runs.get(run_id)
    if run.exit is not None and run.ended_at is not None:
        return f"has ended: {run.exit.message}"
    return f"goes back to the queue as attempt {run.attempt}"


_LOOK_EVERY_S = 1.0
_TELL_EVERY_S = 30.0
_CLOCKS_DIFFER_S = 2.0


def wait_until_unheld(site: Site, name: str, say: Callable[[str], None]) -> None:
    """Wait until the ttl and the margin have passed since the last renewal on node *name*.

    By the database's clock. Its guard, if it reaches the ledger, renews nothing from now on
    and stops what runs there; if not, it may be waiting for the ledger with containers that
    train. `headway.policy.guard` says why they are dead after this. Interrupted, the node is
    what it was before.

    Raises:
        InvalidInput: Its worker came back meanwhile, or its leases do not expire.
    """
    nodes = site.ledger.nodes
    before, margin_s = nodes.get(name), GuardTimes(site.settings.lease_ttl_s).margin_s
    if before is None:
        return
    if math.isinf(nodes.held_s(name, margin_s)):
        raise InvalidInput("node", name, _NEVER)
    nodes.set_state(name, NodeState.LOST, "it is being removed")
    try:
        _count_down(site, name, margin_s, say)
    except BaseException:
        nodes.set_state(name, before.node.state, before.node.state_reason)
        raise


def _count_down(site: Site, name: str, margin_s: float, say: Callable[[str], None]) -> None:
    nodes, clock = site.ledger.nodes, site.clock
    left_s = nodes.held_s(name, margin_s)
    if left_s > 0:
        say(
            f"what runs on {name} may be alive for {format_duration(left_s)} more: waiting. If its "
            "machine is off, interrupt this and add --powered-off"
        )
    told_s = begun_s = clock.monotonic_s()
    ends_s = begun_s + left_s
    while left_s > 0:
        clock.sleep(min(left_s, _LOOK_EVERY_S))
        left_s, now_s = nodes.held_s(name, margin_s), clock.monotonic_s()
        if now_s + left_s > ends_s + _CLOCKS_DIFFER_S:
            raise InvalidInput("node", name, _BACK)
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            say(f"{format_duration(max(left_s, 0.0))} left …")


_NEVER = (
    "it was the site's only node when it last renewed its leases, so it stops nothing by "
    "itself; once you know that its machine is off, add --powered-off"
)
_BACK = (
    "its worker came back meanwhile and its leases are renewed again, so it was not removed; stop "
    "it there with `headway node leave`, or switch the machine off and add --powered-off"
)
