"""`headway doctor --invariants` on a real ledger and disk, with a Prefect of this test's own."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from headway.admin import doctor
from headway.admin.invariants import examine
from headway.admin.node_removal import remove_node
from headway.clock import SystemClock
from headway.errors import SiteUnreachable
from headway.ledger import Ledger
from headway.model.inspection import Kind
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.number_range import NumberRange
from headway.model.run import Exit, ExitKind, Measurement
from headway.prefect.client import PrefectServer
from headway.prefect.listed_run import ListedRun
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.docker.engine import Remap
from headway.runtime.errors import RuntimeFailure
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.ports.clock import FakeClock
from tests.support.containers import create_container
from tests.support.leading import grant_in_term
from tests.support.postgresql import with_ledger
from tests.support.queued import enqueue

RUN, OTHER = (f"00000000-0000-4000-8000-00000000000{at}" for at in (1, 2))
LONG_AGO_S = 1_000_000_000
NOWHERE = "tcp://127.0.0.1:9"


class Prefect(PrefectServer):
    """Has one state for each run, as an operator of this test left it."""

    def __init__(self, states: dict[str, str]) -> None:
        super().__init__("http://127.0.0.1:1/api", auth=None)
        self.states = states
        self.away = False

    def these(self, run_ids: Sequence[str]) -> dict[str, ListedRun]:
        if self.away:
            raise SiteUnreachable(self.api_url, "refused")
        return {each: self._listed(each) for each in run_ids if each in self.states}

    def run(self, run_id: str) -> ListedRun:
        return self._listed(run_id)

    def end(self, run_id: str, state_type: str, message: str, *, name: str = "") -> None:
        self.states[run_id] = state_type

    def _listed(self, run_id: str) -> ListedRun:
        state = self.states[run_id]
        at = datetime.fromtimestamp(LONG_AGO_S).astimezone()
        return ListedRun(run_id, "job", state, state.title(), "", "", {}, at)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    site.clock = FakeClock()
    job = TrainingJob(name="job", image="image:1", command=["true"], stop_grace="1s")
    for run_id in (RUN, OTHER):
        enqueue(site, run_id, job)
    yield site
    site.ledger.close()


def finish(site: Site, run_id: str) -> Lease:
    """Let a run end as it was killed behind its end an hour ago: its lease is left."""
    demand = Demand(host_memory_bytes=MIB, cpus=0.1)
    lease = grant_in_term(site.ledger, run_id, "here", demand)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    site.ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, "done"), Measurement())
    with site.ledger._database.engine.begin() as connection:
        then = site.ledger.now() - timedelta(hours=1)
        sql = text("UPDATE run SET ended_at = :then WHERE run_id = :run")
        connection.execute(sql, {"then": then.replace(tzinfo=None), "run": run_id})
    return lease


def kinds(findings: Sequence[object]) -> list[str]:
    return sorted(each.kind.value for each in findings)  # type: ignore[attr-defined]


def test_what_is_broken_is_found(site: Site) -> None:
    finish(site, RUN)
    create_container(site, RUN)
    site.ledger.leases.release(finish(site, OTHER).fence)
    with site.ledger._database.engine.begin() as connection:
        connection.execute(text("UPDATE run SET told_end_at = ended_at WHERE run_id = :run"),
                           {"run": OTHER})  # fmt: skip
    found = examine(site, Prefect({RUN: "RUNNING", OTHER: "CRASHED"}))
    assert kinds(found.broken) == ["lease", "prefect", "prefect"]
    assert all(each.mends == "the janitor of here" for each in found.broken)


def test_what_is_asked_of_prefect_is_unknown_while_it_is_away(site: Site) -> None:
    finish(site, RUN)
    server = Prefect({RUN: "RUNNING", OTHER: "SCHEDULED"})
    server.away = True
    found = examine(site, server)
    assert kinds(found.broken) == ["lease", "untold"]
    assert len(found.unknown) == 1


def test_containers_are_unknown_while_the_runtime_is_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise RuntimeFailure("the engine does not answer")

    finish(site, RUN)
    monkeypatch.setattr(site.runtime, "containers", silent)
    server = Prefect({RUN: "COMPLETED", OTHER: "SCHEDULED"})
    found = examine(site, server)
    assert "containers" in found.unknown[0]
    assert kinds(found.broken) == ["lease", "untold"]


def test_a_lease_on_a_node_that_is_gone_goes_as_doctor_says(site: Site) -> None:
    finish(site, RUN)
    with site.ledger._database.engine.begin() as connection:
        connection.execute(text("UPDATE node SET removed_at = heartbeat_at"))
    server = Prefect({RUN: "COMPLETED", OTHER: "SCHEDULED"})
    (found,) = (each for each in examine(site, server).broken if each.kind is Kind.LEASE)
    assert "`headway node remove`, given again" in found.mends
    remove_node(site, "here")
    assert site.ledger.leases.live("here") == []


def test_a_home_without_a_ledger_is_one_failed_check_and_the_others_go_on(tmp_path: Path) -> None:
    site = Site(Settings(home=tmp_path / "none", node="here"), SystemClock(), Ledger.find)
    found = {each.what: each for each in doctor.examine(site, Prefect({}))}
    assert not found["ledger"].ok
    assert "Start a site with `headway up`" in found["ledger"].found
    unknown = [each.what for each in found.values() if each.found == doctor.NEEDS_LEDGER]
    assert unknown == ["container runtime"]
    assert {"GPUs", "disk", "worker of this node", "Prefect server"} <= found.keys()
    assert found["disk"].ok
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's site gives teams uids")
def test_a_team_that_an_engine_with_remapped_users_cannot_have_is_named(tmp_path: Path) -> None:
    # Nobody listens there: the engine was asked before how it maps users.
    settings = Settings(
        home=with_ledger(tmp_path), node="here", runtime="docker", docker_host=NOWHERE
    )
    site = Site(settings, SystemClock(), Ledger.open)

    def teams(remap: Remap | None) -> doctor.Finding:
        assert isinstance(site.runtime, DockerRuntime)
        site.runtime.engine.__dict__["remap"] = remap
        return {each.what: each for each in doctor.examine(site, Prefect({}))}["teams"]

    site.user_of("vision")
    assert teams(None) == ("teams", True, "1 with uids of their own")
    small = NumberRange(231_072, 296_607)
    found = teams(Remap(small, small))
    assert not found.ok
    assert "remaps users to 231072-296607, and outside are vision (2100000000-21000" in found.found
    wide = NumberRange(1_000_000, 2_147_000_000)
    assert teams(Remap(wide, wide)).ok
    one_user = Site(settings.model_copy(update={"container_user": "1000:1000"}), SystemClock())
    one_user.__dict__["ledger"] = site.ledger
    said = {each.what: each for each in doctor.examine(one_user, Prefect({}))}["teams"]
    assert said.found.startswith("programs of all teams are 1000:1000: each can read")
    site.ledger.close()
