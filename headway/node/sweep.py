"""What nobody needs on this node any more: containers, secrets, data sets.

Whatever fails is tried again with the janitor's next round.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.durable import UNFINISHED, remove_unfinished
from headway.errors import HeadwayError, LedgerUnreachable, RunUnknown
from headway.model.run import GRANTED, RunState
from headway.node.flowlock import live_flow
from headway.run.code import forget_working_copy
from headway.run.here import forget_secrets
from headway.run.kept_files import keep_new_files
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
    at_work = {container.run_id for container in containers}
    for container in without_run:
        with trying(f"container {container.name}"):
            _remove(site, container)
    with trying("secrets"):
        _remove_secrets(site)
    with trying("copies of code"):
        _remove_copies(site)
    with trying("data sets in use"):
        _release_data(site, at_work)
    with trying("the cache"):
        site.cache.sweep()
    with trying("what the runtime left"):
        site.runtime.sweep()


@contextmanager
def trying(what: str) -> Iterator[None]:
    """One thing that fails keeps nothing else from being tidied up."""
    try:
        yield
    except LedgerUnreachable:
        raise  # it would be the same for everything else, each after a long wait
    except (HeadwayError, OSError) as error:
        log.warning("%s: %s; tried again next round", what, error)


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
    for name in _of_nobody(site, site.settings.secrets_dir.glob("headway-*")):
        log.warning("secrets of %s were left: removed", name)
        with trying(f"secrets of {name}"):
            forget_secrets(site.settings, name)
    for left in remove_unfinished(site.settings.secrets_dir, site.clock.now().timestamp()):
        log.warning("secrets in %s were never finished: removed", left.name)


def _remove_copies(site: Site) -> None:
    """Remove the copies of code of containers that are gone, whoever was killed before it did."""
    for name in _of_nobody(site, site.settings.work_dir.glob("*")):
        log.warning("the copy of code %s was left: removed", name)
        with trying(f"copy of code {name}"):
            keep_new_files(site, name)
            forget_working_copy(site.settings, name)


def _of_nobody(site: Site, folders: Iterable[Path]) -> list[str]:
    """Names of those of *folders* whose container is gone, and so is the flow process."""
    # A flow makes them before it creates the container: flows are looked at first.
    state_dir = site.settings.state_dir
    left = {each.name for each in folders if live_flow(state_dir, _run_of(each.name)) is None}
    names = {each.name for each in site.runtime.containers()} if left else set()
    left -= names
    runs = site.ledger.runs.of([_run_of(name) for name in left]) if left else {}
    engines = site.ledger.engines.pools() if runs else {}  # their follower lets go of its own
    theirs = {
        run.run_id for run in runs.values()
        if run.pool in engines and run.state is not RunState.ENDED
    }  # fmt: skip
    # The follower lets go of a folder there once its job has ended.
    jobs = [site.settings.slurm_dir, *site.settings.engines_dir.glob("*")]
    kept = {name for name in left if any((place / _key_of(name)).exists() for place in jobs)}
    return sorted(name for name in left - kept if _run_of(name) not in theirs)


def _key_of(name: str) -> str:
    """Run and attempt whose container is called *name*, or whose copy was made under that name."""
    return name.removeprefix(UNFINISHED).partition(".")[0].removeprefix("headway-")


def _run_of(name: str) -> str:
    return _key_of(name).rpartition("-")[0]


def _release_data(site: Site, at_work: set[str]) -> None:
    """Let go of the data sets of runs that need them here no more."""
    sets = site.ledger.staged.list(site.settings.node)
    for run_id in {run_id for each in sets for run_id in each.run_ids} - at_work:
        if live_flow(site.settings.state_dir, run_id) is None and _is_over_here(site, run_id):
            log.warning("run %s still held a data set here: released", run_id)
            with trying(f"data sets of run {run_id}"):
                site.cache.release(run_id)


def _is_over_here(site: Site, run_id: str) -> bool:
    """Has the run ended, or gone to another node? A waiting one may be granted here next."""
    try:
        run = site.ledger.runs.get(run_id)
    except RunUnknown:  # of a ledger before this one
        return True
    elsewhere = run.state in GRANTED and run.node != site.settings.node
    return elsewhere or run.state is RunState.ENDED
