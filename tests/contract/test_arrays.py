"""Arrays in the ledger: a member becomes a run once, whoever is killed on the way there."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from headway.errors import RunUnknown
from headway.ledger import Ledger
from headway.ledger.arrays import MemberCounts
from headway.ledger.records import ArrayRecord
from headway.model.array import Array
from headway.model.lease import Demand, Lease, Wait
from headway.model.run import Exit, ExitKind, Measurement, RunState
from headway.units import GIB
from tests.support.leading import admit_in_term
from tests.support.on_ledger import enqueue, join

AT = datetime(2026, 1, 1, tzinfo=UTC)
JOB = {"name": "sweep", "image": "i", "command": ["train", "--lr", "{lr}", "{other}"]}
SIX = Array({"lr": (0.1, 0.01), "seed": (1, 2, 3)})


def add(ledger: Ledger, array: Array = SIX, **given: str | None) -> ArrayRecord:
    values = {"name": "sweep", "owner": "me", "team": "vision", "pool": "gpu", "queue": "default"}
    return ledger.arrays.add(JOB, array, **{"key": None, **values, **given}, submitted_at=AT)  # type: ignore[arg-type]


def joined(ledger: Ledger, array: ArrayRecord, index: int) -> str:
    run_id = str(uuid4())
    assert ledger.arrays.join(array.array_id, index, run_id) is not None
    return run_id


def granted(ledger: Ledger, run_id: str) -> Lease | Wait:
    return admit_in_term(ledger, run_id, "node-a", Demand(GIB))


def ended(ledger: Ledger, run_id: str, kind: ExitKind = ExitKind.OK) -> None:
    fence = ledger.runs.get(run_id).fence(ledger.leases.of_run(run_id))
    ledger.runs.finish(fence, Exit(kind, 0, "done"), Measurement())


@pytest.fixture(autouse=True)
def _has_a_node(ledger: Ledger) -> None:
    join(ledger)


def test_members_that_have_not_started_are_one_row(ledger: Ledger) -> None:
    array = add(ledger, Array({"seed": tuple(range(1000))}))
    assert (array.size, array.created) == (1000, 0)
    assert ledger.pools.snapshot("gpu", {}).waiting == {}
    assert [each.array_id for each in ledger.arrays.due("gpu")] == [array.array_id]
    assert ledger.arrays.due("other") == []


def test_the_next_member_is_due_when_none_waits(ledger: Ledger) -> None:
    array = add(ledger)
    first = joined(ledger, array, 1)
    assert ledger.arrays.due("gpu") == []
    assert isinstance(granted(ledger, first), Lease)
    assert [each.created for each in ledger.arrays.due("gpu")] == [1]
    joined(ledger, array, 2)
    assert ledger.arrays.due("gpu") == []


def test_a_member_joins_once(ledger: Ledger) -> None:
    array = add(ledger)
    first = joined(ledger, array, 1)
    again = ledger.arrays.join(array.array_id, 1, first)
    assert again is not None
    assert again.run_id == first
    assert ledger.arrays.join(array.array_id, 1, str(uuid4())) is None
    assert ledger.arrays.join(array.array_id, 7, str(uuid4())) is None
    assert ledger.arrays.join(str(uuid4()), 1, str(uuid4())) is None
    assert [run.array_index for run in ledger.arrays.members(array.array_id)] == [1]
    assert ledger.arrays.get(array.array_id).created == 1


def test_a_member_runs_its_parameters(ledger: Ledger) -> None:
    array = add(ledger)
    run = ledger.runs.get(joined(ledger, array, 5))
    assert (run.name, run.owner, run.team, run.array_index) == ("sweep-5", "me", "vision", 5)
    assert run.job["command"] == ["train", "--lr", "0.01", "{other}"]
    assert run.job["name"] == "sweep"  # by which its runs are compared
    assert run.state is RunState.WAITING


def test_at_most_so_many_are_granted(ledger: Ledger) -> None:
    array = add(ledger, Array({"lr": (1, 2, 3)}, at_most=2))
    runs = [joined(ledger, array, index) for index in (1, 2, 3)]
    assert [isinstance(granted(ledger, run), Lease) for run in runs] == [True, True, False]
    wait = granted(ledger, runs[2])
    assert isinstance(wait, Wait)
    assert wait.reason == "its array runs 2 at a time, and 2 of it run"
    ended(ledger, runs[0])
    assert isinstance(granted(ledger, runs[2]), Lease)


def test_how_its_members_stand(ledger: Ledger) -> None:
    array, other = add(ledger), add(ledger)
    runs = [joined(ledger, array, index) for index in range(1, 6)]
    for run in runs[:4]:
        granted(ledger, run)
    kinds = (ExitKind.OK, ExitKind.OUT_OF_MEMORY, ExitKind.CANCELLED)
    for run, kind in zip(runs, kinds, strict=False):
        ended(ledger, run, kind)
    counts = ledger.arrays.counts([array.array_id, other.array_id])
    assert counts[array.array_id] == MemberCounts(
        waiting=1, running=1, ended_well=1, failed=1, cancelled=1
    )
    assert counts[other.array_id] == MemberCounts()
    assert ledger.arrays.counts([]) == {}


def test_a_cancelled_array_has_no_further_members(ledger: Ledger) -> None:
    array = add(ledger)
    ledger.arrays.cancel(array.array_id, "by user me")
    assert ledger.arrays.due("gpu") == []
    # Its run was made in Prefect before: somebody has to end it there.
    late = ledger.runs.get(joined(ledger, array, 1))
    assert late.state is RunState.ENDED
    assert late.exit == Exit(ExitKind.CANCELLED, None, "its array was cancelled by user me")
    ends = ledger.runs.untold(["gpu"], "", 9)
    assert [run.run_id for run in ends] == [late.run_id]
    ledger.arrays.reopen(array.array_id)
    assert [each.created for each in ledger.arrays.due("gpu")] == [1]


def test_an_array_that_is_over_is_not_cancelled_any_more(ledger: Ledger) -> None:
    array = add(ledger, Array({"lr": (0.1, 0.2)}))
    first, last = joined(ledger, array, 1), joined(ledger, array, 2)
    ended(ledger, first, ExitKind.OK)
    ended(ledger, last, ExitKind.OK)
    ledger.arrays.cancel(array.array_id, "by user me")
    assert ledger.arrays.get(array.array_id).cancelled_at is None


def test_one_key_gives_one_array(ledger: Ledger) -> None:
    first = add(ledger, key="vision/me/k")
    assert add(ledger, key="vision/me/k").array_id == first.array_id
    assert add(ledger, key="vision/me/l").array_id != first.array_id
    assert len(ledger.arrays.listed(9)) == 2


def test_an_array_is_found_by_id_prefix_and_name(ledger: Ledger) -> None:
    array = add(ledger)
    for called in (array.array_id, array.array_id[:8], array.name):
        assert ledger.arrays.find(called).array_id == array.array_id
        assert ledger.arrays.find(called, team="vision").array_id == array.array_id
        with pytest.raises(RunUnknown):
            ledger.arrays.find(called, team="language")


def test_a_newer_run_of_the_name_is_meant(ledger: Ledger) -> None:
    add(ledger)
    later = datetime(2026, 1, 2, tzinfo=UTC)
    enqueue(ledger, str(uuid4()), JOB, name="sweep", team="vision", submitted_at=later)
    with pytest.raises(RunUnknown):
        ledger.arrays.find("sweep")


def test_of_an_array_and_a_run_of_one_name_ones_own_is_meant(ledger: Ledger) -> None:
    array = add(ledger)
    whose, name = array.owner, "sweep"
    for owner, day in (("bob", 2), ("eve", 1)):
        at = datetime(2025 + (day > 1), 1, day, tzinfo=UTC)
        enqueue(ledger, str(uuid4()), JOB, name=name, team="vision", owner=owner, submitted_at=at)
    assert ledger.arrays.find(name, owner=whose).array_id == array.array_id  # bob's run is newer
    for other in ("bob", "eve"):  # eve's is older
        with pytest.raises(RunUnknown):
            ledger.arrays.find(name, owner=other)


def test_the_order_of_parameters_is_kept(ledger: Ledger) -> None:
    array = add(ledger, Array({"b": (1, 2), "a": (3, 4)}))
    commands = [ledger.runs.get(joined(ledger, array, at)).run_id for at in (1, 2)]
    assert len(set(commands)) == 2
    kept = ledger.arrays.get(array.array_id).parameters
    assert kept["parameters"] == [["b", [1, 2]], ["a", [3, 4]]]
