"""Waiting until nothing can be alive any more on a node that is silent."""

import math
from collections.abc import Callable

from headway.errors import InvalidInput
from headway.model.node import NodeState
from headway.policy.guard import GuardTimes
from headway.site import Site
from headway.units import format_duration

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
