"""Settings that the ledger keeps are taken over."""

from collections.abc import Callable
from functools import partial
from typing import Any

from prefect.logging import get_logger

from headway.policy.settings import LINE
from headway.site import POLICY, Site
from headway.this_node import adopt

log = get_logger("worker.gpu-node")


def adopt_settings(site: Site) -> bool:
    """Go by what the ledger keeps of what operators edited; whether any of it is new here.

    A wrong value leaves the last good one.
    """
    new = False
    found = site.ledger.settings.of((f"node/{site.settings.node}", POLICY, LINE))
    for name, kept in found.items():
        if kept != site.adopted.get(name):
            new |= take(partial(adopt, site), name, kept)
    return new


def take(keep_it: Callable[[str, dict[str, Any]], bool], name: str, data: dict[str, Any]) -> bool:
    """Let *keep_it* have what a block says; whether it is new. What is not valid is logged."""
    try:
        new = keep_it(name, data)
    except ValueError as error:
        first = str(error).splitlines()[0]
        log.warning("the block of %s is not used: %s", name, first)
        return False
    if new:
        log.info("the block of %s was read: its settings hold now", name)
    return new
