"""Where the containers of a gang meet, on a real ledger and a fake engine; without Prefect."""

import json
import logging
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.errors import ImpossibleDemand
from headway.gateway.submit import refuse_impossible
from headway.model.container_policy import GangNetwork, NetworkMode
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.job_text import read_job
from headway.model.launch import Launch
from headway.model.lease import Demand, Lease
from headway.model.node import PortUse
from headway.node.janitor import Janitor
from headway.policy.gang_end import Rank
from headway.run.attempt import Attempt
from headway.run.gang_folder import ASKS, tell
from headway.run.gang_folder import GANG as GANG_FOLDER
from headway.runtime.errors import PolicyViolation, RuntimeFailure
from headway.settings import Settings
from headway.site import POLICY, Site
from headway.this_node import adopt, join_site
from headway.units import MIB
from tests.ports.runtime import FakeMachine, FakeRuntime, Script
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue

RANK = "00000000-0000-4000-8000-000000000002"
GANG = "00000000-0000-4000-8000-000000000001"
WANTS = Resources(nodes=2, host_memory="64MiB", cpus=0.1)
JOB = TrainingJob(name="gang", image="image:1", command=["true"], ports=[6006], resources=WANTS)
AUTH = "PREFECT_SERVER_API_AUTH_STRING"


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine(default=Script(runs_s=60.0))


@pytest.fixture
def site(tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in (AUTH, "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    site = Site(Settings(home=with_ledger(tmp_path), runtime="docker", node="head"), SystemClock())
    monkeypatch.setattr(
        site.chosen,
        "_engine",
        lambda policy, reserve_cpus=0.0: FakeRuntime("s", policy, site.clock, machine),
    )
    join_site(site)
    other = replace(site.ledger.nodes.all()[0].node, name="other")
    site.ledger.nodes.register(other, boot_id="b", worker_token="w")
    return site


def granted(site: Site, job: TrainingJob = JOB) -> tuple[Attempt, Lease]:
    enqueue(site, GANG, job)
    demand = Demand(host_memory_bytes=64 * MIB, cpus=0.1, ports=(6006,))
    lease = grant_in_term(site.ledger, GANG, "head", demand, others=["other"])
    return Attempt(site, GANG), lease


def ready_parts(site: Site) -> None:
    """Have every other part of the gang begun and ready."""
    for number, held in enumerate(site.ledger.leases.untaken(GANG), start=2):
        rank = f"{GANG[:-1]}{number}"
        site.ledger.runs.ready(site.ledger.leases.take(held.lease_id, GANG, 1, rank).fence)


def start(attempt: Attempt, lease: Lease) -> str | None:
    """Start rank 0; where the others are told that it is."""
    assert attempt.start_together(lease, dict, lambda late: None) is None
    return attempt.record.place


def test_the_parts_are_told_the_address_of_a_head_that_runs(
    site: Site, machine: FakeMachine
) -> None:
    adopt(site, POLICY, {"gang_network": "gangs"})
    attempt, lease = granted(site)
    ready_parts(site)
    place = start(attempt, lease)
    status = site.runtime.inspect(attempt.container)
    assert status is not None
    assert status.address != ""
    spec = machine.containers[attempt.container].spec
    assert spec.network == GangNetwork("gangs")
    # To itself the head goes by its own name, and nobody else is let in where the gang meets.
    assert spec.env["MASTER_ADDR"] == attempt.container
    assert place == f"{status.address}:{spec.env['MASTER_PORT']}"
    assert spec.ports == {6006: 6006}
    # Whoever takes the flow over tells the same.
    assert start(Attempt(site, GANG), lease) == place


def test_a_head_that_has_ended_tells_no_place(site: Site, machine: FakeMachine) -> None:
    machine.default = Script()
    adopt(site, POLICY, {"gang_network": "gangs"})
    attempt, lease = granted(site)
    ready_parts(site)
    assert start(attempt, lease) is None


def test_no_part_starts_before_all_have_data_and_image(site: Site, machine: FakeMachine) -> None:
    adopt(site, POLICY, {"gang_network": "gangs"})
    attempt, lease = granted(site)
    late: list[str] = []

    def ready(ranks: Sequence[Rank]) -> None:
        late.extend(rank.who for rank in ranks)
        assert attempt.record.is_ready
        assert attempt.container not in machine.containers
        ready_parts(site)

    assert attempt.start_together(lease, dict, ready) is None
    assert late == ["rank 1 on other"]
    assert attempt.container in machine.containers


def test_a_program_that_needs_all_places_begins_when_all_parts_run(
    site: Site, machine: FakeMachine
) -> None:
    adopt(site, POLICY, {"gang_network": "gangs"})
    attempt, lease = granted(site, JOB.model_copy(update={"launch": Launch.TENSORFLOW}))
    (held,) = site.ledger.leases.untaken(GANG)
    fence = site.ledger.leases.take(held.lease_id, GANG, 1, RANK).fence
    site.ledger.runs.ready(fence)
    folder = attempt.folder / "gang-1"

    class ThenTheOther(SystemClock):
        def sleep(self, seconds: float) -> None:
            assert attempt.container in machine.containers
            assert not (folder / "go").exists()
            site.ledger.runs.placed(fence, "10.0.0.6:29501")

    site.clock = ThenTheOther()
    place = start(attempt, lease)
    spec = machine.containers[attempt.container].spec
    assert spec.command[:2] == ("/bin/sh", "-c")
    assert spec.command[3:] == ("headway", GANG_FOLDER, ASKS, "true")
    env = {"PATH": os.environ["PATH"]}
    told = subprocess.run(
        [*spec.command[:4], folder, "", "sh", "-c", "echo $TF_CONFIG"],
        env=env, check=True, capture_output=True,
    )  # fmt: skip
    assert json.loads(told.stdout) == {
        "cluster": {"worker": [place, "10.0.0.6:29501"]},
        "task": {"type": "worker", "index": 0},
    }
    attempt.clean_up()
    assert not folder.exists()


def test_a_place_that_is_none_is_told_to_no_program(site: Site) -> None:
    adopt(site, POLICY, {"gang_network": "gangs"})
    attempt, _ = granted(site, JOB.model_copy(update={"launch": Launch.TENSORFLOW}))
    with pytest.raises(RuntimeFailure, match="no such place"):
        tell(attempt, ["10.0.0.6:29501", "'; rm -rf /; '"], 0)


def test_with_an_auth_string_a_gang_may_have_the_nodes_own_network(
    site: Site, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(site, POLICY, {"gang_network": "host"})
    attempt, lease = granted(site)
    ready_parts(site)
    with pytest.raises(PolicyViolation, match=AUTH):
        start(attempt, lease)
    monkeypatch.setenv(AUTH, "admin:secret")
    place = start(attempt, lease)
    assert place is not None
    assert attempt.container not in place
    assert machine.containers[attempt.container].spec.network is NetworkMode.HOST


def test_a_gang_without_a_network_is_refused_before_it_is_queued(site: Site) -> None:
    text = (
        b"name: gang\nimage: image:1\ncommand: [x]\n"
        b"resources:\n  nodes: 2\n  host_memory: 64MiB\n  cpus: 0.1\n"
    )
    read = read_job(text, filename="job.yaml")
    with pytest.raises(ImpossibleDemand) as refused:
        refuse_impossible(site, read, pool="", queue="")
    assert str(refused.value).startswith("job.yaml:5 resources.nodes: got 2; this site has no net")
    assert "gang_network of the block headway-container-policy/site" in str(refused.value)
    adopt(site, POLICY, {"gang_network": "gangs"})
    refuse_impossible(site, read, pool="", queue="")
    # And once more where it begins, should the policy have changed meanwhile.
    attempt, _ = granted(site)
    adopt(site, POLICY, {})
    with pytest.raises(ImpossibleDemand, match="gang_network"):
        attempt.admit()


def test_the_nodes_own_network_for_all_is_no_policy_without_an_auth_string(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=AUTH):
        adopt(site, POLICY, {"network": "host"})
    monkeypatch.setenv(AUTH, "admin:secret")
    assert adopt(site, POLICY, {"network": "host"})


def test_every_node_goes_by_a_policy_that_another_one_has_read_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Site(site.settings, site.clock)
    monkeypatch.setattr(other.chosen, "_engine", site.chosen._engine)
    for each in (site, other):
        adopt(each, POLICY, {"gang_network": "gangs"})
    before = other.runtime
    assert adopt(site, POLICY, {"gang_network": "others"})
    assert adopt(other, POLICY, {"gang_network": "others"})
    assert other.runtime is not before
    assert not adopt(other, POLICY, {"gang_network": "others"})


def test_the_janitor_says_once_what_is_amiss_with_the_network(
    site: Site, machine: FakeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """And jobs with ports are refused from then on, until their containers have a network."""
    janitor, uses = Janitor(site), []
    with caplog.at_level(logging.WARNING, "headway.node.janitor"):
        for why in ("iptables is not installed", "iptables is not installed", "", "gone again"):
            machine.unguarded = why
            janitor.round([], frozenset())
            (here,) = (each for each in site.ledger.nodes.all() if each.node.name == "head")
            uses.append(here.node.ports.use)
    assert uses == [PortUse.NONE, PortUse.NONE, PortUse.PUBLISHED, PortUse.NONE]
    assert [record.message for record in caplog.records] == [
        "iptables is not installed", "gone again"
    ]  # fmt: skip
