"""A node whose machine does not come back: its runs go on elsewhere, or end with the reason."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from headway.admin.node_removal import remove_node
from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.model.run import RunState
from headway.settings import Settings
from headway.site import Site
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.prefect


@pytest.fixture
def gone(process_site: LiveSite) -> Iterator[Site]:
    """The live site with a second node that was heard of just now; the first is drained."""
    site = Site(Settings(home=process_site.home, runtime="process"), SystemClock())
    here = site.ledger.nodes.get(process_site.env["HEADWAY_NODE"]).node
    process_site.run("node", "drain", here.name)
    site.ledger.nodes.register(
        replace(here, name=f"gone-{uuid4().hex[:6]}"), boot_id="gone", worker_token="gone"
    )
    yield site
    process_site.run("node", "resume", here.name)
    site.ledger.close()


def gone_name(site: Site) -> str:
    names = (each.node.name for each in site.ledger.nodes.all())
    return next(name for name in names if name.startswith("gone"))


def running_there(live: LiveSite, site: Site, retries: int) -> str:
    """A run that trains on the node that is gone."""
    with live.server() as server:
        job = sleeper(2, retries=retries)
        run_id = server.submit({"job": job}, name="far", tags=[], key=None).run_id
    lease = wait_for(lambda: site.ledger.leases.of_run(run_id), lambda: run_id)
    assert lease.node == gone_name(site)
    site.ledger.leases.take_up(lease.fence)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    return run_id


def test_a_node_that_still_reports_is_not_removed(gone: Site) -> None:
    with pytest.raises(InvalidInput, match="node leave"):
        remove_node(gone, gone_name(gone))
    with pytest.raises(InvalidInput, match="nowhere"):
        remove_node(gone, "nowhere")
    gone.ledger.nodes.remove(gone_name(gone))


def test_its_runs_go_elsewhere_or_end(
    process_site: LiveSite, gone: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, never = (running_there(process_site, gone, retries) for retries in (1, 0))
    name = gone_name(gone)
    monkeypatch.setattr("headway.scheduler.snapshot.LOST_AFTER_S", -1.0)
    removed = {each.run_id: each.then for each in remove_node(gone, name, powered_off=True)}
    assert removed[again] == "goes back to the queue as attempt 2"
    assert "has ended" in removed[never]
    assert name not in {each.node.name for each in gone.ledger.nodes.all()}
    assert not [each for each in (again, never) if gone.ledger.leases.of_run(each)]
    assert gone.ledger.runs.get(never).state is RunState.ENDED
    assert process_site.until(never, "Failed")["exit"]["kind"] == "infrastructure"
    process_site.run("node", "resume", process_site.env["HEADWAY_NODE"])
    assert process_site.until(again, "Completed")["attempt"] == 2
