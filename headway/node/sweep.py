"""What nobody needs on this node any more: containers, secrets, data sets, leases of gangs.

Whatever fails is tried again with the janitor's next round.
"""

import logging
from collections.abc import Iterable

from headway.errors import HeadwayError, RunUnknown
from headway.model.run import GRANTED, RunState
from headway.node.flowrun import live_flow
from headway.run.here import forget_secrets
from headway.runtime.port import ContainerStatus
from headway.site import Site
from headway.this_node import remove_container

log = logging.getLogger(__name__)


def sweep(
    site: Site, containers: Iterable[ContainerStatus], without_run: Iterable[ContainerStatus]
) -> None:
    """Let go of what the runs of this node have left behind.

    Args:
        site: Whose node it is.
        containers: All that the runtime had before the round.
        without_run: Those of them that stand for no attempt of a run that the round was about.
    """
    settings = site.settings
    for gang_id in site.ledger.leases.release_untaken(settings.node, settings.lease_ttl_s):
        log.warning("gang %s did not begin its part here: its lease is released", gang_id)
    for container in without_run:
        try:
            _remove(site, container)
        except HeadwayError as error:
            log.warning("container %s: %s; tried again next round", container.name, error)
    _remove_secrets(site)
    try:
        _release_data(site, {container.run_id for container in containers})
        site.cache.sweep()
    except HeadwayError as error:
        log.warning("the cache was not swept: %s; tried again next round", error)


def _remove(site: Site, container: ContainerStatus) -> None:
    lease = site.ledger.leases.of_run(container.run_id)
    here = site.settings.node, container.attempt
    if lease is not None and (lease.node, lease.attempt) == here:
        return  # it began after the runs were read, as a gang's rank does at any time
    log.warning("container %s belongs to no live attempt: removed", container.name)
    site.runtime.stop(container.name, 10.0)
    remove_container(site, container.name, container.run_id)


def _remove_secrets(site: Site) -> None:
    """Remove the secrets of containers that are gone, whoever was killed before it did."""
    folders = list(site.settings.secrets_dir.glob("headway-*"))
    names = {each.name for each in site.runtime.containers()} if folders else set()
    for folder in folders:
        run_id = folder.name.removeprefix("headway-").rpartition("-")[0]
        # A flow lays them down before it creates the container.
        if folder.name not in names and live_flow(site.settings.state_dir, run_id) is None:
            log.warning("secrets of %s were left: removed", folder.name)
            forget_secrets(site.settings, folder.name)


def _release_data(site: Site, at_work: set[str]) -> None:
    """Let go of the data sets of runs that need them here no more."""
    sets = site.ledger.staged.list(site.settings.node)
    for run_id in {run_id for each in sets for run_id in each.run_ids} - at_work:
        if live_flow(site.settings.state_dir, run_id) is None and _is_over_here(site, run_id):
            log.warning("run %s still held a data set here: released", run_id)
            site.cache.release(run_id)


def _is_over_here(site: Site, run_id: str) -> bool:
    """Has the run ended, or gone to another node? A waiting one may be granted here next."""
    try:
        run = site.ledger.runs.get(run_id)
    except RunUnknown:  # of a ledger before this one
        return True
    elsewhere = run.state in GRANTED and run.node != site.settings.node
    return elsewhere or run.state is RunState.ENDED
