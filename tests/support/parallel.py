"""How the tests are shared out among several processes.

A file's tests go to one process, and so do the files that use one live site: two processes
would each bring it up. What takes longest is begun first, what is short fills up at the end.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_LIVE = {
    "one node": (
        "tests/faults/test_user_wishes.py",
        "tests/faults/test_burst.py",
        "tests/faults/test_arrays_and_chains.py",
        "tests/integration/test_first_job.py",
        "tests/integration/test_from_python.py",
        "tests/integration/test_tools.py",
        "tests/integration/test_flows_of_ones_own.py",
        "tests/faults/test_busy_site.py",
        "tests/integration/test_proxy.py",
        "tests/integration/test_foreign_runs.py",
        "tests/integration/test_unreadable_runs.py",
        "tests/integration/test_removal.py",
        "tests/integration/test_door.py",
        "tests/integration/test_retrain.py",
        "tests/integration/test_notices.py",
        "tests/integration/test_trackers.py",
        "tests/integration/test_supervisor.py",
        "tests/integration/test_invariants.py",
        "tests/integration/test_live_session.py",
        "tests/integration/test_answers.py",
    ),
    "both runtimes": (
        "tests/integration/test_main_job.py",
        "tests/integration/test_side_by_side.py",
        "tests/faults/test_kills.py",
        "tests/faults/test_down_and_up.py",
        "tests/integration/test_gang_engine.py",
        "tests/browser/test_run_form.py",
        "tests/browser/test_gateway_pages.py",
        "tests/integration/test_secrets.py",
        "tests/integration/test_home.py",  # before environments, of which any program may use uv
        "tests/integration/test_code_travels.py",
        "tests/integration/test_docker_session.py",
    ),
    "several nodes": (
        "tests/integration/test_nodes.py",
        "tests/integration/test_gang.py",
        "tests/integration/test_live_store.py",  # takes a node away
    ),
    "gpus": ("tests/integration/test_gpus.py", "tests/integration/test_profile.py"),
}
"""Files that share a site, by its name."""
SITES = {
    "process_site": ("one node", "both runtimes"),
    "docker_site": ("both runtimes",),
    "three_nodes": ("several nodes",),
    "stub_site": ("gpus",),
}
"""The fixtures that are these sites, and who may use them. One is brought up twice: what uses it
would take one process longer than all the others together."""
_ALONE = (
    "tests/integration/test_one_door.py",
    "tests/integration/test_compose.py",
    "tests/integration/test_wheel.py",
    "tests/faults/test_lost_leader.py",
    "tests/faults/test_sick_gpus.py",
    "tests/integration/test_slurm_site.py",
    "tests/integration/test_slurm_queue.py",
    "tests/integration/test_ray_site.py",
    "tests/integration/test_refit.py",
    "tests/contract/test_protocol.py",
    "tests/contract/test_runtime.py",
)
"""Files with a live site of their own, and others that take long."""
_LAST = "tests/unit/"
_SHARED_BY = {file: name for name, files in _LIVE.items() for file in files}
_FIRST = [*_LIVE, *_ALONE]


def group(nodeid: str) -> str:
    """What of the tests goes to one process together with the test *nodeid*."""
    file = nodeid.partition("::")[0]
    return _SHARED_BY.get(file, file)


def share_a_site(nodeid: str, later: str) -> bool:
    """Whether a site that is up for the test *nodeid* may be one that *later* uses."""
    groups = {group(nodeid), group(later)}
    return len(groups) == 1 or any(groups <= {*users} for users in SITES.values())


def turn(nodeid: str) -> tuple[int, int]:
    """Which tests come earlier: those that this is smaller for."""
    name, file = group(nodeid), nodeid.partition("::")[0]
    if name in _LIVE:
        return _FIRST.index(name), _LIVE[name].index(file)
    if name in _FIRST:
        return _FIRST.index(name), 0
    return len(_FIRST) + name.startswith(_LAST), 0


def check(item: pytest.Item) -> None:
    """Refuse a test that uses a shared site from a file that is not known to.

    Raises:
        UsageError: The file has to be named above.
    """
    for fixture in SITES.keys() & set(getattr(item, "fixturenames", ())):
        if group(item.nodeid) not in SITES[fixture]:
            raise pytest.UsageError(
                f"{item.nodeid} uses {fixture}: name its file in {__name__} under "
                f"{' or '.join(map(repr, SITES[fixture]))}, so that no process brings the site up "
                "for it alone"
            )


class BySite(LoadScopeScheduling):
    """Gives each process a whole group at a time, in the order of `turn`."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
