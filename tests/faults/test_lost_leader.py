"""The machine that leads a gang is gone for good: the others start the gang anew by themselves."""

from collections.abc import Iterator, Mapping

import psutil
import pytest

from tests.integration.test_gang import MEET, all_run, job, nobody_holds_anything
from tests.support.nodes import KINDS, several_nodes
from tests.support.site import LiveSite, processes_of, wait_for

pytestmark = [pytest.mark.postgresql, pytest.mark.prefect, pytest.mark.long]

TTL_S = 30.0
"""Of the site's leases; without it a lost leader takes 16 minutes."""
WAITS = f"""\
import os, time
if os.environ["HEADWAY_ATTEMPT"] == "1":
    time.sleep(600)
{MEET}"""


@pytest.fixture
def nodes(
    postgresql: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, LiveSite]]:
    folder = tmp_path_factory.mktemp("lost")
    with several_nodes(folder, postgresql, KINDS, HEADWAY_LEASE_TTL_S=str(TTL_S)) as found:
        yield found


def test_a_gang_whose_leading_machine_is_gone_starts_anew_on_others(
    nodes: Mapping[str, LiveSite], tmp_path_factory: pytest.TempPathFactory
) -> None:
    head = nodes["head"]
    # The server's machine has no part at first: it is another one that goes.
    assert head.run("node", "drain", "head").returncode == 0
    wants = {"gpus": 1, "gpu_memory": "1GiB"}
    asked = job(WAITS, "0", name="orphaned", resources=wants)
    run_id = head.submit(tmp_path_factory.mktemp("jobs"), **asked)
    view = all_run(head, run_id, 2)
    lost, (rank,) = view["node"], view["ranks"]
    assert {lost, rank["node"]} == {"left", "middle"}
    power_off(nodes[lost])
    assert head.run("node", "resume", "head").returncode == 0
    again = head.until(run_id, "Completed", "Failed")
    assert (again["state"], again["attempt"]) == ("Completed", 2), again
    assert {again["node"], again["ranks"][-1]["node"]} == {"head", rank["node"]}
    first, second = again["attempts"]
    assert first["exit"]["message"].startswith(f"node {lost}, where rank 0 ran, is lost")
    assert second["exit"]["kind"] == "ok"
    assert "heard rank 1 of 2" in head.run("logs", run_id).stdout
    wait_for(lambda: nobody_holds_anything(head), lambda: str(head.json("nodes")))


def power_off(site: LiveSite) -> None:
    """Kill whatever runs on that node, all at once, its guard and programs as well."""

    def found() -> list[psutil.Process]:
        return processes_of(site.home)

    assert found()
    for process in found():
        process.suspend()  # so that none brings another one back
    for process in found():
        process.kill()
    wait_for(lambda: not found(), lambda: f"still there: {found()}")
