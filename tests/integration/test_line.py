"""A node's look at the queue, on a real ledger: what starts, what waits and why."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import httpx
import pytest
from sqlalchemy import text

from headway.client import Client
from headway.clock import SystemClock
from headway.credentials import Address
from headway.errors import InvalidInput, LedgerUnreachable
from headway.estimate.starts import PLAYED
from headway.gateway.submit import rehearse
from headway.leader.play import play_queue
from headway.leader.settings_blocks import keep_blocks
from headway.ledger.audit_log import Act
from headway.ledger.errors import TermOver
from headway.ledger.progress_snapshots import NOT_KEPT_YET
from headway.ledger.runs import Reason
from headway.ledger.tables import LeaderRow
from headway.model.attempt_record import ProgressSnapshot
from headway.model.job_text import job_from_document
from headway.model.lease import Fence, Lease, Resource, Wait
from headway.model.node import Gpu, GpuReading, NodeState
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState
from headway.model.trace import Trace
from headway.model.turn import VirtualClock
from headway.node.flowlock import hold_flow
from headway.node.grants import NodeGrants
from headway.policy.plan import Start
from headway.policy.settings import LINE
from headway.run.here import NodeAttempt
from headway.scheduler.intake import Offer, Taken
from headway.scheduler.limits import GATES, Gates, gates_document
from headway.scheduler.planning import read_pool
from headway.scheduler.queue import Pass, PoolQueue
from headway.scheduler.why import why
from headway.settings import Settings
from headway.site import Site
from headway.this_node import adopt, heartbeat, join_site, os_user, read_node
from headway.views.queue_document import line_views, waiting_of, why_view
from headway.views.site_snapshot import progress_of_runs
from headway.views.tables import start_text
from headway.worker.housekeeping import adopt_settings
from headway.worker.pool import PrefectPool
from tests.support.api import MEMBER, bearer, serving
from tests.support.fence import fence_of
from tests.support.leading import admit_in_term, leading, term_of

NODES = ("here", "there")


@pytest.fixture
def sites(ledger_url: str, tmp_path: Path) -> Iterator[dict[str, Site]]:
    """Two nodes of one pool with one ledger; each has this machine's memory and CPUs."""
    found = {}
    for name in NODES:
        settings = Settings(
            home=tmp_path / name, runtime="process", node=name, ledger_url=ledger_url
        )
        found[name] = Site(settings, SystemClock())
        join_site(found[name])
        heartbeat(found[name], read_node(found[name]))
    yield found
    for site in found.values():
        site.ledger.close()


@pytest.fixture
def here(sites: dict[str, Site]) -> Site:
    return sites["here"]


def offer(name: str, *, age_s: float = 0.0, share: float = 0.6, **changes: Any) -> Offer:
    """A run that takes *share* of a node's memory, submitted *age_s* ago."""
    memory = int(offer.site.ledger.nodes.get("here").node.capacity.host_memory_bytes * share)  # type: ignore[attr-defined]
    document = {
        "name": name,
        "image": "i:1",
        "command": ["true"],
        "resources": {"host_memory": f"{memory // 2**20}MiB", "cpus": 0.1},
        **changes.pop("job", {}),
    }
    submitted_at = offer.site.ledger.now() - timedelta(seconds=age_s)  # type: ignore[attr-defined]
    run_id = f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012d}"
    if "team" in document or "owner" in document:
        submitted(run_id, document.get("owner", ""), document.get("team", "default"))
    return Offer(run_id, name, document, submitted_at, key=run_id, **changes)


def submitted(key: str, owner: str, team: str) -> None:
    """A job that came in at the gateway, whose run has *key*."""
    ledger = offer.site.ledger  # type: ignore[attr-defined]
    ledger.submissions.add(key, owner=owner, team=team, act=Act(owner, "run.submit", "job"))


@pytest.fixture(autouse=True)
def _offers_are_for(here: Site) -> None:
    offer.site = here  # type: ignore[attr-defined]


def names(site: Site, run_ids: Any) -> list[str]:
    return [site.ledger.runs.get(run_id).name for run_id in run_ids]


def site_name(sites: dict[str, Site], run_id: str) -> str:
    return sites["here"].ledger.runs.get(run_id).name


def only_here(sites: dict[str, Site]) -> PoolQueue:
    """The queue of a pool whose other node takes nothing."""
    sites["there"].ledger.nodes.set_state("there", NodeState.DRAINING, "new fan")
    return leading(sites["here"])


def test_what_fits_starts_and_the_others_learn_why(sites) -> None:
    line = only_here(sites)
    first, second = offer("first", age_s=10), offer("second")
    assert line.take_in([first, second]) == Taken()
    seen = line.run_pass()
    assert names(sites["here"], seen.granted) == ["first"]
    assert line.run_pass().granted == ()
    record = sites["here"].ledger.runs.get(second.run_id)
    assert record.state is RunState.WAITING
    assert "of host memory; at most" in record.reason
    told = seen.waiting[second.run_id]
    assert told.startswith(
        f"{record.reason}; number 1 in the queue, start not known: "
        "nothing is known of how long first runs; if it still waits at "
    )
    assert seen.logged == {second.run_id}
    # The reason is news once.
    assert line.run_pass().waiting == {}


def test_a_reason_that_could_not_be_written_is_told_by_the_next_pass(sites, monkeypatch) -> None:
    line, runs = only_here(sites), sites["here"].ledger.runs
    second = offer("second")
    line.take_in([offer("first", age_s=10), second])
    with monkeypatch.context() as away:
        gone = LedgerUnreachable("postgresql://db", "it was restarted")
        away.setattr(runs, "set_reasons", Mock(side_effect=gone))
        with pytest.raises(LedgerUnreachable):
            line.run_pass()
    assert runs.get(second.run_id).reason == ""
    line.run_pass()
    assert "of host memory" in runs.get(second.run_id).reason


def following(name: str, other: Offer, when: str = "ok") -> Offer:
    """A small run that follows *other*."""
    return offer(name, share=0.05, job={"after": {"run": other.run_id, "when": when}})


def end(here: Site, run: Offer, kind: ExitKind) -> None:
    here.ledger.runs.finish(fence_of(here.ledger, run.run_id), Exit(kind, 0, "over"), Measurement())


@pytest.mark.parametrize(
    ("kind", "starts", "ends"),
    [(ExitKind.OK, {"good", "any"}, "bad"), (ExitKind.FAILED, {"bad", "any"}, "good")],
)
def test_a_run_follows_another(sites, kind, starts, ends) -> None:
    here, line = sites["here"], only_here(sites)
    first = offer("first", age_s=10, share=0.1)
    chain = {
        name: following(name, first, when)
        for name, when in (("good", "ok"), ("bad", "failed"), ("any", "any"))
    }
    line.take_in([first, *chain.values()])
    assert names(here, line.run_pass().granted) == ["first"]
    good = here.ledger.runs.get(chain["good"].run_id)
    assert good.reason == f"waits for run first ({first.run_id[:8]}) to end well"
    assert good.promised_at is None  # nothing is promised before it may start
    assert why(here, good).held_back == good.reason
    lease = admit_in_term(here.ledger, good.run_id, "here", good.demand)
    assert isinstance(lease, Wait)  # whoever asks
    end(here, first, kind)
    line.run_pass()  # it ends what will never start
    told = {name: here.ledger.runs.get(run.run_id) for name, run in chain.items()}
    granted = {name for name, run in told.items() if run.state is RunState.CLAIMED}
    assert granted == starts
    assert told[ends].state is RunState.ENDED
    assert told[ends].exit.kind is ExitKind.CANCELLED
    assert told[ends].exit.message.endswith(f"which ended as {kind.value}; nothing was started")


def test_a_run_waits_again_where_the_one_that_it_follows_is_tried_again(sites) -> None:
    here, line = sites["here"], only_here(sites)
    first = offer("first", share=0.1)
    second = following("second", first)
    line.take_in([first, second])
    line.run_pass()
    end(here, first, ExitKind.OK)
    here.ledger.runs.retry(first.run_id, 1)
    line.run_pass()
    assert here.ledger.runs.get(second.run_id).state is RunState.WAITING


def test_the_expected_start_follows_what_a_running_log_tells(sites) -> None:
    here = sites["here"]
    line = only_here(sites)
    first, second = (
        offer(name, age_s=age_s, job={"max_runtime": "8h"})
        for name, age_s in (("first", 10), ("second", 0))
    )
    line.take_in([first, second])
    assert names(here, line.run_pass().granted) == ["first"]
    here.ledger.runs.begin(
        fence_of(here.ledger, first.run_id), container="c", runtime="process", ttl_s=60.0
    )
    (before,) = read_pool(here).plan(()).entries
    assert before.unknown == "nothing is known of how long first runs"  # whatever its time limit
    said = ProgressSnapshot(first.run_id, 1, NOT_KEPT_YET, 5.0, done_frac=0.1, remaining_s=60.0)
    here.ledger.progress_snapshots.keep(fence_of(here.ledger, said.run_id), said)
    (after,) = read_pool(here).plan(()).entries
    assert after.expected_at == pytest.approx(
        here.ledger.now() + timedelta(seconds=60), abs=timedelta(seconds=20)
    )
    far = replace(said, remaining_s=1e300)
    here.ledger.progress_snapshots.keep(fence_of(here.ledger, said.run_id), far)
    (endless,) = read_pool(here).plan(()).entries
    assert endless.expected_at <= endless.latest_at


def test_everybody_is_told_the_same_start(sites) -> None:
    """State message, queue, top, show, HTTP, the ledger and a dry run, of one moment."""
    here, line = sites["here"], only_here(sites)
    offers = [offer(f"job-{at}", age_s=10 - at) for at in range(4)]
    line.take_in(offers[:3])
    assert line.run_pass().granted == (offers[0].run_id,)
    here.ledger.runs.begin(
        fence_of(here.ledger, offers[0].run_id), container="c", runtime="process", ttl_s=60.0
    )
    left = ProgressSnapshot(offers[0].run_id, 1, NOT_KEPT_YET, 60.0, 0.5, 60.0, 50.0, 80.0)
    here.ledger.progress_snapshots.keep(fence_of(here.ledger, left.run_id), left)
    at = here.ledger.now()
    told = leading(here).run_pass().waiting

    def near(moment: str | datetime | None, seconds: float) -> bool:
        when = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        return abs((when - at).total_seconds() - seconds) < 20

    (running,) = progress_of_runs(here, [here.ledger.runs.get(offers[0].run_id)])
    assert running.remaining_s == pytest.approx(60, abs=20)
    queue = {view["run_id"]: view for view in line_views(here)}
    for each, wait_s in ((offers[1], 60.0), (offers[2], 180.0)):  # the first one's like takes 120 s
        record = here.ledger.runs.get(each.run_id)
        shown = waiting_of(here, record)
        assert near(queue[each.run_id]["expected_start_at"], wait_s)
        assert near(shown["expected_start_at"], wait_s)
        assert near(record.expected_start_at, wait_s)
        assert told[each.run_id].startswith(f"{queue[each.run_id]['reason']}; number ")
        assert start_text(shown, record.expected_start_at)[:11] in told[each.run_id]
        assert " until " not in told[each.run_id]
    with serving(here) as url, httpx.Client(headers=bearer(here), timeout=60) as client:
        shown = client.get(f"{url}/v1/runs/{offers[1].run_id}").json()["waiting"]
        assert near(shown["expected_start_at"], 60.0)
        assert near(client.get(f"{url}/v1/queue").json()[0]["expected_start_at"], 60.0)
    entry, *_ = rehearse(here, job_from_document(offers[3].document), pool="gpu", queue="default")
    # The queue is played for it: what is known of one like run leaves much open.
    assert entry.earliest_at < at + timedelta(seconds=300) < entry.latest_at
    play_queue(here, "gpu", {})
    line.run_pass()
    kept = here.ledger.starts.of_waiting(list(queue))
    assert all(rows[0].at_submission for rows in kept.values())
    assert kept.keys() == queue.keys(), "not every start that was said is kept"


def test_all_who_ask_are_told_the_start_of_one_plan_and_none_before_its_holder_ends(sites) -> None:
    """While the run that has the place changes its own end, and a like one has ended early."""
    here, line = sites["here"], only_here(sites)
    twin, first, second, third = (
        offer(name, age_s=20 - at, job={"name": "fit"}, share=0.1 if name == "twin" else 0.6)
        for at, name in enumerate(("twin", "first", "second", "third"))
    )
    line.take_in([twin, first, second, third])
    assert line.run_pass().granted == (twin.run_id, first.run_id)
    end(here, twin, ExitKind.OK)
    here.ledger.leases.release(fence_of(here.ledger, twin.run_id))
    fence = fence_of(here.ledger, first.run_id)
    here.ledger.runs.begin(fence, container="c", runtime="process", ttl_s=60.0)
    left = ProgressSnapshot(first.run_id, 1, NOT_KEPT_YET, 9.0, 0.1, 3600.0, 3000.0, 5000.0)
    asked = []
    with serving(here) as url, httpx.Client(headers=bearer(here), timeout=60) as client:
        for remaining_s, plays in ((3600.0, True), (7200.0, False), (7200.0, True), (600.0, False)):
            said = replace(left, remaining_s=remaining_s, high_s=max(remaining_s, 5000.0))
            here.ledger.progress_snapshots.keep(fence, said)
            if plays:
                play_queue(here, "gpu", {})
            for run in (second, third):
                why_it_waits = client.get(f"{url}/v1/runs/{run.run_id}/why").json()
                shown = client.get(f"{url}/v1/runs/{run.run_id}").json()["waiting"]
                lines = {each["run_id"]: each for each in client.get(f"{url}/v1/queue").json()}
                words = leading(here).run_pass().waiting[run.run_id]
                faces = [why_it_waits, shown, lines[run.run_id]]
                starts = [{key: each[key] for key in _OF_A_START} for each in faces]
                assert starts[0] == starts[1] == starts[2]
                start = datetime.fromisoformat(starts[0]["expected_start_at"])
                assert start_text(shown, start)[:11] in words
                (holder,) = why_it_waits["holders"]
                assert start >= datetime.fromisoformat(holder["expected_end_at"])
                asked.append((starts[0]["planned_at"], start))
    per_plan = {planned: {s for p, s in asked if p == planned} for planned, _ in asked}
    assert [len(starts) for starts in per_plan.values()] == [2, 2]  # two plans, two runs


def test_the_plan_of_a_queue_that_is_empty_by_now_is_forgotten(sites) -> None:
    """Else the next run that waits would be told by ends of long ago."""
    here, line = sites["here"], only_here(sites)
    line.take_in([offer("only")])
    play_queue(here, "gpu", {})
    assert here.ledger.settings.get(PLAYED.format("gpu"))["waits"]
    assert line.run_pass().granted
    assert play_queue(here, "gpu", {}).turns == {}
    assert not here.ledger.settings.get(PLAYED.format("gpu"))["waits"]


_OF_A_START = ("earliest_start_at", "expected_start_at", "latest_start_at", "planned_at")


def test_it_is_said_why_a_run_waits_and_what_would_start_it_earlier(sites) -> None:
    here, line = sites["here"], only_here(sites)
    running, ahead, waits = (offer(f"job-{at}", age_s=10 - at) for at in range(3))
    line.take_in([running, ahead, waits])
    assert line.run_pass().granted == (running.run_id,)
    here.ledger.runs.begin(
        fence_of(here.ledger, running.run_id), container="c", runtime="process", ttl_s=60.0
    )
    left = ProgressSnapshot(running.run_id, 1, NOT_KEPT_YET, 60.0, 0.5, 600.0, 500.0, 800.0)
    here.ledger.progress_snapshots.keep(fence_of(here.ledger, left.run_id), left)
    line.run_pass()
    with serving(here) as url:
        mine = Client(Address(url, bearer(here)["Authorization"].removeprefix("Bearer ")))
        with mine:
            found = mine.why(waits.run_id)
            with pytest.raises(InvalidInput, match="waits for its start"):
                mine.why(running.run_id)
    assert (found["resource"], found["position"]) == ("host_memory", 2)
    assert [one["name"] for one in found["holders"]] == ["job-0"]
    assert [(one["name"], one["position"]) for one in found["ahead"]] == [("job-1", 1)]
    changes = {one["field"]: one for one in found["changes"]}
    assert changes.keys() == {"resources.host_memory"}, "CPUs are not what it lacks"
    change = changes["resources.host_memory"]
    assert change["starts_now"]
    # In turn each page has it.
    first = play_queue(here, "gpu", {})
    names = {each.run_id: each.name for each in (ahead, waits)}
    second = play_queue(here, "gpu", first.turns)
    pages = {names[each.run_id]: each.text for each in (first, second)}
    assert pages.keys() == {"job-1", "job-2"}
    assert f"- {change['text']}: now\n" in pages["job-2"].replace("\\", "")
    assert "- job-0 on " in pages["job-2"]
    assert "- job-1: it is shorter or came earlier" in pages["job-2"]
    # It is the smallest that helps, and it does.
    size = change["value"]
    assert size < here.ledger.runs.get(waits.run_id).demand.host_memory_bytes
    smaller = {**waits.document, "name": "smaller"}
    smaller["resources"] = {**smaller["resources"], "host_memory": f"{size // 2**20}MiB"}
    entry, *_ = rehearse(here, job_from_document(smaller), pool="gpu", queue="default")
    assert isinstance(entry, Start)


def test_of_a_run_whose_demand_is_not_known_yet_it_is_said_why_it_waits(here) -> None:
    new = offer("new")
    here.ledger.runs.enqueue(
        new.run_id, new.document, name="new", owner="", team="", pool="gpu", queue="default",
        priority=-1, submitted_at=new.submitted_at,
    )  # fmt: skip
    found = why_view(here, here.ledger.runs.get(new.run_id), sees=lambda _team: True)
    assert "is being computed" in found["reason"]
    assert (found["position"], found["starts_now"], found["changes"]) == (None, False, [])


def test_of_a_run_that_starts_while_it_is_asked_about_nothing_contradicts_itself(sites) -> None:
    here, line = sites["here"], only_here(sites)
    starts = offer("starts")
    line.take_in([starts])
    before = here.ledger.runs.get(starts.run_id)
    assert line.run_pass().granted == (starts.run_id,)
    with pytest.raises(InvalidInput, match="waits for its start: it is starting"):
        why_view(here, before, sees=lambda _team: True)


def test_runs_of_other_teams_have_no_names_where_it_is_said_why_one_waits(sites) -> None:
    here, line = sites["here"], only_here(sites)
    theirs = offer("theirs", age_s=5, job={"team": "blue"})
    mine = offer("mine", job={"team": "red"})
    another = offer("another", job={"team": "blue"})  # its start depends on how long theirs runs
    line.take_in([theirs])
    line.run_pass()
    line.take_in([mine, another])
    line.run_pass()
    with serving(here) as url, httpx.Client(timeout=60) as client:
        member = bearer(here, "ada", "red", MEMBER)
        found = client.get(f"{url}/v1/runs/{mine.run_id}/why", headers=member)
        for path in ("queue", "top"):
            places = client.get(f"{url}/v1/{path}", headers=member).text
            assert "mine" in places
            assert "theirs" not in places
        assert client.get(f"{url}/v1/runs/{theirs.run_id}/why", headers=member).status_code == 404
    assert found.status_code == 200
    (holder,) = found.json()["holders"]
    assert (holder["run_id"], holder["name"], holder["team"]) == (None, None, None)
    assert holder["host_memory_bytes"] > 0
    assert "theirs" not in found.text
    assert theirs.run_id not in found.text


def test_a_run_whose_last_process_is_still_leaving_is_not_started(sites) -> None:
    line = only_here(sites)
    again = offer("again")
    line.take_in([again])
    with hold_flow(sites["here"].settings.state_dir, again.run_id):
        assert line.run_pass().granted == (again.run_id,)
        assert NodeGrants(sites["here"]).to_start() == []
    assert NodeGrants(sites["here"]).to_start() == [again.run_id]


def test_a_run_is_granted_what_the_ledger_says_it_needs_now(sites) -> None:
    """A flow that gave its place back between two passes has found that it needs more."""
    line, here = only_here(sites), sites["here"]
    grown = offer("grown")
    line.take_in([grown])
    capacity = here.ledger.nodes.get("here").node.capacity
    line.run_pass(Gates(pool_paused=True))
    record = here.ledger.runs.get(grown.run_id)
    more = replace(record.demand, host_memory_bytes=capacity.host_memory_bytes)
    here.ledger.runs.predict(fence_of(here.ledger, grown.run_id), record.prediction, more)
    assert line.run_pass().granted == ()
    assert here.ledger.leases.of_run(grown.run_id) is None


def test_the_leader_grants_on_all_nodes_and_the_others_nothing(sites) -> None:
    line, standby = leading(sites["here"]), leading(sites["there"])
    assert (line.leads, standby.leads) == (True, False)
    offers = [offer(f"run-{i}", age_s=10 - i) for i in range(4)]
    assert line.take_in(offers) == Taken()
    assert standby.run_pass() == Pass()
    assert len(line.run_pass().granted) == 2
    leases = sites["here"].ledger.leases.live()
    assert sorted(lease.node for lease in leases) == sorted(NODES)
    for name, site in sites.items():
        (mine,) = [lease.run_id for lease in leases if lease.node == name]
        assert NodeGrants(site).to_start() == [mine]
        site.ledger.leases.take_up(site.ledger.leases.of_run(mine).fence)
        assert NodeGrants(site).to_start() == []


def test_a_leader_whose_term_is_over_writes_nothing(sites) -> None:
    """As one that was frozen, and wakes up in the middle of a pass."""
    here, there = sites["here"], sites["there"]
    frozen, old = leading(here), term_of(here)
    frozen.take_in([offer("a"), offer("b")])
    with here.ledger._database.transaction() as session:
        session.get(LeaderRow, "gpu").expires_at -= timedelta(hours=1)
    standby = leading(there)
    assert standby.leads
    assert frozen.leads  # for all that it knows
    with pytest.raises(TermOver, match="term 1 of pool gpu is over"):
        frozen.run_pass()
    assert here.ledger.leases.live() == []
    clock = VirtualClock(here.ledger.now())
    for write in (
        lambda: here.ledger.turns.keep(old, clock, {}),
        lambda: here.ledger.runs.set_reasons([Reason("a", Resource.TURN, "no", None)], old),
        lambda: here.ledger.runs.preempt(Fence("a", 1), "b", old),
    ):
        with pytest.raises(TermOver):
            write()
    assert len(standby.run_pass().granted) == 2
    frozen.contend(reaches_prefect=True)
    assert not frozen.leads
    assert frozen.run_pass() == Pass()


def test_shortest_first_and_priority_before_it(sites) -> None:
    line = only_here(sites)
    runs = sites["here"].ledger.runs
    long, short, urgent = offer("long", age_s=30), offer("short"), offer("urgent", queue="urgent")
    gates = Gates(priorities={"urgent": 5})
    for each, seconds in ((long, 36_000.0), (short, 60.0), (urgent, 36_000.0)):
        line.take_in([each])
        demand = runs.get(each.run_id).demand
        said = Prediction(seconds, seconds / 2, seconds * 2)
        runs.predict(fence_of(sites["here"].ledger, each.run_id), said, demand)
    line.run_pass(gates)
    order = []
    for _ in range(3):
        (lease,) = sites["here"].ledger.leases.live()
        order.append(runs.get(lease.run_id).name)
        sites["here"].ledger.leases.give_back(fence_of(sites["here"].ledger, lease.run_id))
        _end(sites["here"], lease.run_id)
        line.run_pass(gates)
    assert order == ["urgent", "short", "long"]


def _end(site: Site, run_id: str) -> None:
    from headway.model.run import Exit, ExitKind, Measurement

    site.ledger.runs.finish(
        fence_of(site.ledger, run_id), Exit(ExitKind.CANCELLED, None, "test"), Measurement()
    )


def test_a_quota_holds_a_team_back(sites) -> None:
    line = only_here(sites)
    adopt(sites["here"], LINE, {"teams": {"vision": {"max_running": 1}}})
    team = {"job": {"team": "vision"}}
    line.take_in([offer(f"v{i}", share=0.1, age_s=9 - i, **team) for i in range(2)])
    line.take_in([offer("other", share=0.1)])
    seen = line.run_pass()
    assert sorted(names(sites["here"], seen.granted)) == ["other", "v0"]
    (reason,) = seen.waiting.values()
    assert reason.startswith("team vision may have 1 run(s) at once and has them; number 1 in")


def test_wrong_settings_leave_the_last_good_ones(here) -> None:
    adopt(here, LINE, {"window": 10})
    with pytest.raises(ValueError, match="window: got 0"):
        adopt(here, LINE, {"window": 0})
    assert here.policy_settings.window == 10


def test_the_queue_says_why_a_run_waits_though_it_was_read_before_that_was_known(sites) -> None:
    here, line = sites["here"], only_here(sites)
    line.take_in([offer("a")])
    assert [view["starts_now"] for view in line_views(here)] == [True]
    paused = gates_document(Gates(pool_paused=True))
    here.ledger.settings.put(f"{GATES}/{here.settings.pool}", paused)
    line.run_pass()
    (view,) = line_views(here)
    assert (view["reason"], view["starts_now"]) == ("its work pool is paused", False)


def test_paused_queues_and_limits_hold(sites) -> None:
    line = only_here(sites)
    line.take_in([offer("a", share=0.1, queue="slow"), offer("b", share=0.1, queue="fast")])
    seen = line.run_pass(Gates(paused=frozenset({"slow"}), queue_limits={"fast": 0}))
    assert seen.granted == ()
    reasons = {site_name(sites, run_id): reason for run_id, reason in seen.waiting.items()}
    assert reasons["a"] == "work queue slow is paused"
    assert names(sites["here"], line.run_pass(Gates(pool_limit=1)).granted) in (["a"], ["b"])
    seen = line.run_pass(Gates(pool_paused=True))
    assert seen.granted == ()
    assert set(seen.waiting.values()) == {"its work pool is paused"}
    assert len(line.run_pass().granted) == 1


def test_a_run_bound_to_a_node_starts_there_only(sites) -> None:
    line, bound = leading(sites["here"]), offer("bound", queue="there")
    line.take_in([bound])
    assert line.run_pass().granted == (bound.run_id,)
    assert sites["here"].ledger.leases.of_run(bound.run_id).node == "there"


def test_a_lost_node_takes_nothing_and_its_leases_stay(sites, monkeypatch) -> None:
    monkeypatch.setattr("headway.scheduler.snapshot.LOST_AFTER_S", -1.0)
    line = leading(sites["here"])
    line.take_in([offer("waits")])
    assert line.run_pass().granted == ()


def test_a_preemptible_run_makes_room_for_a_higher_priority(sites) -> None:
    line = only_here(sites)
    site = sites["here"]
    low = offer("low", job={"preemptible": True})
    line.take_in([low])
    line.run_pass()
    lease = site.ledger.leases.of_run(low.run_id)
    assert isinstance(lease, Lease)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    line.take_in([offer("same")])
    line.run_pass()
    assert NodeGrants(site).to_stop() == []
    high, gates = offer("high", queue="high"), Gates(priorities={"high": 3})
    line.take_in([high])
    line.run_pass(gates)
    assert NodeGrants(site).to_stop() == [low.run_id]
    assert site.ledger.runs.get(low.run_id).preempted_for == high.run_id
    # Told once, it stays told until it has gone.
    line.run_pass(gates)
    assert NodeGrants(site).to_stop() == [low.run_id]


def test_nothing_stops_for_a_run_that_waits_no_more(sites) -> None:
    line, site = only_here(sites), sites["here"]
    low, high = offer("low", share=0.1, job={"preemptible": True}), offer("high", share=0.1)
    line.take_in([low, high])
    line.run_pass()
    lease = site.ledger.leases.of_run(low.run_id)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
    assert not site.ledger.runs.preempt(lease.fence, high.run_id, term_of(site))
    assert NodeGrants(site).to_stop() == []


def test_what_can_never_run_is_refused_and_what_trains_nothing_goes_to_a_node(sites) -> None:
    here = sites["here"]
    line, now = leading(here), here.ledger.now()
    wrong = Offer("wrong", "wrong", {"name": "x"}, now)
    flows = [
        Offer(name, name, None, now, queue=name, flow="nightly") for name in ("default", "there")
    ]
    huge = offer("huge", share=1.5)
    taken = line.take_in([wrong, *flows, huge])
    assert taken.flows == {"default": ("here", "nightly"), "there": ("there", "nightly")}
    assert list(taken.refused) == ["wrong"]
    assert "command: got nothing" in taken.refused["wrong"]
    assert line.called == {huge.run_id}  # Prefect is to be told
    ended = here.ledger.runs.get(huge.run_id)
    assert ended.exit.kind is ExitKind.REFUSED
    assert "ask for at most that" in ended.exit.message


def test_a_run_of_prefects_own_api_is_the_operators_whoever_it_says_it_is(here) -> None:
    line = leading(here)
    said = {"owner": "ada", "team": "vision"}
    came = offer("came", job=said)
    forged = replace(offer("forged", job=said), key="ada/vision/nightly")
    unnamed = replace(offer("unnamed", job=said), key="")
    line.take_in([came, forged, unnamed])
    kept = [here.ledger.runs.get(each.run_id) for each in (came, forged, unnamed)]
    whose = [(each.owner, each.team, each.job["owner"], each.job["team"]) for each in kept]
    operators = (os_user(), "default") * 2
    assert whose == [("ada", "vision") * 2, operators, operators]
    attempt = NodeAttempt(here, forged.run_id)
    assert (attempt.job.owner, attempt.job.team) == operators[:2]


def test_a_preview_writes_nothing(sites) -> None:
    site = sites["here"]
    leading(site).take_in([offer("a"), offer("b")])
    entries = read_pool(site).plan(()).entries
    assert len(entries) == 2
    assert site.ledger.leases.live() == []
    assert {r.state for r in site.ledger.runs.waiting("gpu")} == {RunState.WAITING}


def test_what_is_promised_is_kept_and_the_same_for_all(sites) -> None:
    """Written by the leader; a later one reads it."""
    site = sites["here"]
    line = only_here(sites)
    line.take_in([offer("holder", age_s=200, share=0.6), offer("waits", age_s=100, share=0.6)])
    assert names(site, line.run_pass().granted) == ["holder"]
    record = next(r for r in site.ledger.runs.waiting("gpu") if r.name == "waits")
    assert record.promised_at is not None
    assert "if it still waits at" in record_sentence(site, record)
    line.take_in([offer("late", age_s=10, share=0.6)])
    leading(site).run_pass()
    again = site.ledger.runs.get(record.run_id)
    assert (again.tag, again.promised_at) == (record.tag, record.promised_at)
    late = next(r for r in site.ledger.runs.waiting("gpu") if r.name == "late")
    assert late.promised_at > record.promised_at


def record_sentence(site, record) -> str:
    entries = read_pool(site).plan(()).entries
    (stay,) = [each for each in entries if each.run_id == record.run_id]
    return stay.sentence()


def test_runs_that_wait_for_a_closed_node_leave_the_window_to_the_others(sites) -> None:
    site = sites["here"]
    adopt(site, LINE, {"window": 2})
    line = only_here(sites)
    bound = [offer(f"bound-{i}", age_s=1e6 - i, share=0.1, queue="there") for i in range(3)]
    line.take_in([*bound, offer("free", share=0.1)])
    seen = line.run_pass()
    assert names(site, seen.granted) == ["free"]
    assert set(seen.waiting.values()) == {"node there is draining (new fan)"}
    assert len(seen.waiting) == 3
    site.ledger.nodes.set_state("there", NodeState.READY, "")
    assert names(site, line.run_pass().granted) == ["bound-0", "bound-1"]


def _with_a_gpu(site: Site) -> None:
    """The node as if it had one; nothing reads it."""
    here = site.ledger.nodes.get(site.settings.node)
    node = here.node
    gpu = Gpu("GPU-0", 0, "NVIDIA A100", 40 * 2**30)
    with_it = replace(node, capacity=replace(node.capacity, gpus=(gpu,)))
    site.ledger.nodes.register(with_it, boot_id="b", worker_token="w", identity=here.identity)
    blind = read_node(site)
    site.ledger.nodes.heartbeat(node.name, "w", replace(blind, gpus=(READ,)))


READ = GpuReading("GPU-0", 0, "NVIDIA A100", 40 * 2**30, 0)


ON_THE_GPU = {
    "gpus": 1, "gpu_memory": "1GiB", "sharing": "whole", "host_memory": "64MiB", "cpus": 0.1,
}  # fmt: skip


def _take_the_gpu(site: Site, line: PoolQueue, *, known: bool) -> None:
    """A run holds the only GPU; whether it is *known* how long that lasts."""
    first = offer("first", job={"resources": ON_THE_GPU})
    line.take_in([first])
    demand = site.ledger.runs.get(first.run_id).demand
    until = {"predicted_high_s": 1_000.0} if known else {}
    assert isinstance(admit_in_term(site.ledger, first.run_id, "here", demand, **until), Lease)
    if known:
        said = Prediction(900.0, 800.0, 1_000.0, basis="4 run(s) of the same job")
        site.ledger.runs.predict(fence_of(site.ledger, first.run_id), said, demand)


def _ran(site: Site, gpu_type: str, runtime_s: float) -> Trace:
    """A run of the job on that kind of processor; its recipe is image and name."""
    gpus = 0 if gpu_type == "cpu" else 1
    return Trace("i:1:thrifty", gpu_type, gpus, None, runtime_s=runtime_s, cpus=0.1)


@pytest.mark.parametrize(("cpu_s", "falls_back"), [(900.0, True), (9_000.0, False)])
def test_a_run_that_waits_for_a_gpu_takes_the_cpu_if_it_ends_sooner_so(
    sites, cpu_s: float, falls_back: bool
) -> None:
    site = sites["here"]
    _with_a_gpu(site)
    line = only_here(sites)
    _take_the_gpu(site, line, known=True)
    site.ledger.traces.add([_ran(site, "cpu", cpu_s), _ran(site, READ.name, 60.0)])
    job = {"resources": {**ON_THE_GPU, "cpu_fallback": True}}
    thrifty = offer("thrifty", job=job)
    line.take_in([thrifty])
    before = site.ledger.runs.get(thrifty.run_id)
    assert before.demand.gpus == 1
    started = line.run_pass().granted
    after = site.ledger.runs.get(thrifty.run_id)
    if falls_back:
        assert started == (thrifty.run_id,)
        assert (after.demand.gpus, after.prediction.runtime_s) == (0, pytest.approx(cpu_s, rel=0.2))
        assert "on the CPU" in after.prediction.basis
    else:
        assert (started, after.demand) == ((), before.demand)


@pytest.mark.parametrize("holder_is_known", [True, False])
def test_a_run_of_which_nothing_is_known_takes_the_cpu_at_once(
    sites, holder_is_known: bool
) -> None:
    site = sites["here"]
    _with_a_gpu(site)
    line = only_here(sites)
    _take_the_gpu(site, line, known=holder_is_known)
    job = {"resources": {**ON_THE_GPU, "cpu_fallback": True}}
    asked = offer("unknown", job=job)
    tried = rehearse(site, job_from_document(asked.document), pool="gpu", queue="default")
    line.take_in([asked])
    assert line.run_pass().granted == (asked.run_id,)
    after = site.ledger.runs.get(asked.run_id)
    for said, demand in ((after.prediction, after.demand), (tried.prediction, tried.demand)):
        assert demand.gpus == 0
        assert "on the CPU, since its GPUs are taken" in said.basis
    assert isinstance(tried.entry, Start)


def test_no_more_is_claimed_than_flow_processes_can_begin(sites) -> None:
    line, ledger = only_here(sites), sites["here"].ledger
    most = round(2 * ledger.nodes.get("here").node.capacity.cpus)
    line.take_in([offer(f"short-{n}", age_s=n, share=0.02) for n in range(most + 2)])
    first = line.run_pass()
    assert len(first.granted) == most
    assert first.held_up
    assert not line.may_claim()
    assert line.run_pass().granted == ()
    grants, here = NodeGrants(sites["here"]), sites["here"]
    taken = ledger.leases.of_run(first.granted[0])
    ledger.leases.take_up(taken.fence)
    assert line.may_claim()
    heartbeat(here, replace(read_node(here), slots=most - 1))  # as many as are claimed
    assert not line.may_claim()
    grants.give_back(first.granted[0])  # too late: a flow process has it
    grants.give_back(first.granted[1])
    assert ledger.runs.get(first.granted[0]).state is RunState.CLAIMED
    assert ledger.runs.get(first.granted[1]).state is RunState.WAITING
    assert len(line.run_pass().granted) == 1
    heartbeat(here, read_node(here))  # its worker has no limit
    again = line.run_pass()
    assert len(again.granted) == 1
    assert again.held_up


def test_the_leader_calls_the_node_on_which_something_starts(sites) -> None:
    line, calls = leading(sites["here"]), sites["there"].ledger.calls
    assert not calls.wait("there", 0.01)
    line.take_in([offer("a", age_s=10), offer("b")])
    assert len(line.run_pass().granted) == 2
    assert calls.wait("there", 10.0) == [""]
    line.run_pass()
    assert not calls.wait("there", 0.01)  # nothing of its concern
    calls.send(["here"])
    assert not calls.wait("there", 0.2)


def test_what_waits_is_known_to_who_has_never_looked_at_it(sites) -> None:
    """But for what is suspended: it is offered again when its user wants it to go on."""
    leading(sites["here"]).take_in([offer("a", age_s=10), offer("b")])
    runs = sites["here"].ledger.runs
    first, second = sorted(run.run_id for run in runs.waiting("gpu"))
    assert leading(sites["there"]).known() == {first, second}
    asked = Exit(ExitKind.PREEMPTED, None, "its user asked for that")
    runs.suspend(runs.get(first).unleased, asked)
    assert leading(sites["there"]).known() == {second}


class Blocks:
    """What operators edited, as the server tells it."""

    def __init__(self, **nodes: dict[str, Any]) -> None:
        self.nodes = nodes

    async def block(self, slug: str, document: str) -> None:
        """None of the site's."""

    async def blocks(self, slug: str) -> dict[str, dict[str, Any]]:
        assert slug == "headway-node"
        return self.nodes


def test_what_operators_edit_is_kept_by_the_scheduler_and_taken_over_by_its_node(sites) -> None:
    here, there = sites["here"], sites["there"]
    edited = Blocks(here={"reserve_cpus": 1}, there={"reserve_cpus": 0.25}, gone={})

    def kept() -> bool:
        pool = cast("PrefectPool", edited)
        return asyncio.run(keep_blocks(here, pool, frozenset(NODES)))

    assert not adopt_settings(there)
    assert kept()
    assert not kept()
    assert here.ledger.nodes.get("there").node.reserve.cpus != 0.25
    assert adopt_settings(there)
    assert not adopt_settings(there)
    assert here.ledger.nodes.get("there").node.reserve.cpus == 0.25
    assert here.ledger.settings.get("node/gone") is None
    edited.nodes["there"] = {"reserve_cpus": -1}
    assert not kept()
    assert there.node_settings.reserve_cpus == 0.25


def test_who_waits_for_calls_connects_anew_when_the_database_was_away(sites) -> None:
    calls = sites["there"].ledger.calls
    assert not calls.wait("there", 0.01)
    with sites["here"].ledger._database.transaction() as session:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        session.execute(text(others))
    with pytest.raises(LedgerUnreachable):
        all(not calls.wait("there", 10.0) for _ in range(10))  # its last words come first
    sites["here"].ledger.calls.send(["there"])  # lost: nobody listens
    assert not calls.wait("there", 0.01)
    sites["here"].ledger.calls.send(["there"])
    assert calls.wait("there", 10.0)
