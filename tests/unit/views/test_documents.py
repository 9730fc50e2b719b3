"""What `--json` promises to machines."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headway.ledger.records import RunRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Admit, Basis, Demand, Sharing
from headway.model.number_range import NumberRange
from headway.model.run import (
    Exit,
    ExitKind,
    Measurement,
    Prediction,
    RunState,
    Sized,
    Span,
    Step,
    StepState,
)
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.model.size import sizes_of
from headway.policy.fit import WaitingRun
from headway.policy.plan import Start
from headway.policy.settings import PolicySettings
from headway.prefect.listed_run import ListedRun
from headway.units import COST, GIB
from headway.views.queue_document import rehearsal_view
from headway.views.run_document import (
    comparison,
    is_over,
    run_details,
    run_view,
)
from headway.views.run_history import RunHistory
from headway.views.site_snapshot import RunProgress
from headway.views.watch import outcome

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEN = ListedRun("id-1", "flights", "SCHEDULED", "AwaitingHeadroom", "said by Prefect", "t", {})
RECORD = RunRecord(
    run_id="id-1",
    name="flights",
    owner="me",
    team="default",
    pool="gpu",
    queue="default",
    priority=0,
    preempted_for=None,
    preemptions=0,
    job={"name": "flights"},
    state=RunState.WAITING,
    attempt=2,
    resource="cpus",
    reason="needs 4 CPUs",
    expected_start_at=None,
    node=None,
    runtime=None,
    container=None,
    submitted_at=NOON,
    claimed_at=None,
    started_at=NOON,
    ended_at=None,
    exit=None,
    prediction=Prediction(runtime_s=60.0),
    demand=None,
    demand_override=None,
    measurement=None,
)
FAILURE = SilentFailure(Silent.STARVED, "id-1", "GPU-0", 0.1, 0.3, "waits")
WARNING = RunWarning(2, FAILURE, NOON)
KEYS = {
    "run_id", "name", "owner", "team", "state", "reason", "node", "runtime", "attempt", "size",
    "exit", "submitted_at", "started_at", "ended_at", "duration_s", "done_frac", "remaining_s",
    "remaining_low_s", "remaining_high_s", "remaining_cost", "progress_text", "url", "runtime_s",
    "predicted_s", "predicted_low_s", "predicted_high_s", "predicted_basis",
}  # fmt: skip
NOTHING = RunHistory(
    RECORD, [], [], [], [], [],
    here="a", folder=Path("/r"), outputs=[],
)  # fmt: skip
"""A run of which nothing is known beside its record."""


def test_a_run_that_no_worker_has_seen_is_shown() -> None:
    view = run_view(SEEN, None)
    assert set(view) == KEYS
    assert (view["attempt"], view["exit"], view["reason"]) == (1, None, "said by Prefect")
    assert view["url"] == "/runs/flow-run/id-1"


def test_whose_run_it_is_the_ledger_says_and_nobody_else() -> None:
    said = replace(SEEN, parameters={"job": {"owner": "ada", "team": "vision"}})
    view = run_view(said, None)
    assert (view["owner"], view["team"]) == (None, None)
    view = run_view(said, replace(RECORD, owner="eve", team="speech"))
    assert (view["owner"], view["team"]) == ("eve", "speech")
    assert run_view(said, replace(RECORD, owner=""))["owner"] is None


def test_a_run_is_listed_with_how_long_and_how_far() -> None:
    far = ProgressSnapshot("id-1", 2, NOON, 9.0, done_frac=0.5)
    running = RunProgress(RECORD, 9.0, Span(8.0, 10.0, 20.0), far)
    before = replace(running, far=replace(far, phase="making the environment"))
    assert run_view(SEEN, RECORD, before)["reason"] == "making the environment"
    view = run_view(SEEN, RECORD, running)
    assert (view["duration_s"], view["done_frac"], view["remaining_s"]) == (9.0, 0.5, 10.0)
    assert (view["remaining_low_s"], view["remaining_high_s"]) == (8.0, 20.0)
    assert view["progress_text"] == "50%, 8.0 s to 20 s left"
    ended = replace(RECORD, ended_at=NOON + timedelta(seconds=75))
    assert run_view(SEEN, ended)["duration_s"] == 75.0
    assert run_view(SEEN, RECORD)["duration_s"] is None


def test_what_is_left_costs_its_part_of_what_was_predicted() -> None:
    said = Prediction(runtime_s=100.0, cost=4.0)
    for prediction, left_s, cost in (
        (said, 25.0, 1.0),
        (said, None, None),
        (None, 25.0, None),
        (replace(said, cost=None), 25.0, None),
    ):
        record = replace(RECORD, prediction=prediction)
        running = RunProgress(record, 200.0, left_s and Span(left_s, left_s, left_s))
        assert run_view(SEEN, record, running)["remaining_cost"] == cost


def test_a_run_that_was_cancelled_in_line_waits_for_nothing() -> None:
    over = replace(SEEN, state_type="CANCELLED", state_name="Cancelled", message="by ada")
    assert run_view(over, RECORD)["reason"] == "by ada"


def test_the_ledgers_reason_is_the_newer_one() -> None:
    assert run_view(SEEN, RECORD)["reason"] == "needs 4 CPUs"


def test_details_have_the_documented_keys() -> None:
    step = Step("train", 1, StepState.DONE, NOON, NOON + timedelta(seconds=2.5))
    details = run_details(replace(NOTHING, steps=[step], outputs=["a"]), None)
    assert set(details) >= {
        "steps", "demand", "lease", "predicted", "measured", "progress", "outputs",
    }  # fmt: skip
    assert details["steps"][0] == {
        "name": "train", "attempt": 1, "state": "done", "seconds": 2.5, "message": "",
    }  # fmt: skip
    assert details["predicted"] == {
        "runtime_s": 60.0, "host_peak_bytes": None, "gpu_peak_bytes": None, "cost": None,
        "runtime_low_s": None, "runtime_high_s": None, "basis": "prior",
        "runtime_known": False,
    }  # fmt: skip
    assert set(details["progress"]) >= {"iteration", "total", "remaining_s"}


def test_an_end_is_shown_with_its_advice() -> None:
    ended = replace(
        RECORD,
        state=RunState.ENDED,
        exit=Exit(ExitKind.FAILED, 3, "look at its log"),
        measurement=Measurement(runtime_s=1.0),
    )
    view = run_view(SEEN, ended)
    assert view["exit"] == {"kind": "failed", "code": 3, "message": "look at its log"}


def test_exit_statuses() -> None:
    assert (outcome("Completed"), outcome("Failed"), outcome("Cancelled")) == (0, 1, 1)
    assert not is_over(SEEN)


def test_predicted_stands_beside_measured() -> None:
    said = Prediction(runtime_s=50.0, runtime_low_s=40.0, runtime_high_s=90.0, cost=0.5)
    rows = comparison(said, Measurement(runtime_s=60.0))
    assert rows[0] == {
        "quantity": "run time of the program",
        "predicted": "guess: 50 s (40 s to 1 min 30 s)",
        "measured": "1 min",
        "measured ÷ predicted": "1.20",
    }
    assert [row["quantity"] for row in rows] == ["run time of the program", COST]
    assert rows[1]["measured"] == "–"
    (known, *_) = comparison(replace(said, basis="7 runs"), Measurement(runtime_s=60.0))
    assert known["predicted"] == "50 s (40 s to 1 min 30 s)"


def test_a_rehearsal_says_what_is_only_guessed() -> None:
    guess = Demand(
        GIB, gpus=1, sharing=Sharing.WHOLE, gpu_memory_basis=Basis.PRIOR, gpu_memory_bytes=0
    )
    view = rehearsal_view(None, Prediction(), guess, [])
    assert (view["host_memory_basis"], view["gpu_memory_basis"]) == ("prior", "prior")
    assert view["needs_whole_gpus"] is True
    assert view["sizes"] == []


def test_a_rehearsal_of_a_job_of_open_size_tells_each_size_and_what_it_starts_with() -> None:
    """Not eight GPUs with the time and the cost of one."""
    sized = [
        Sized(
            Demand(GIB, gpus=gpus, nodes=1),
            Prediction(runtime_s=time_s, runtime_low_s=time_s, runtime_high_s=time_s, cost=cost,
                       basis="physics"),
        )
        for gpus, time_s, cost in ((1, 800.0, 1.0), (8, 120.0, 1.2))
    ]  # fmt: skip
    said = Prediction(sizes=tuple(sized)).of_size(sized[0])
    started = WaitingRun.of(
        "r", sized[1].demand, datetime(2026, 1, 1, tzinfo=UTC), settings=PolicySettings()
    )
    start = Start(started, 1, (Admit("n1"),))
    sizes = sizes_of(1, NumberRange(1, 8))
    view = rehearsal_view(start, said, sized[0].demand, [], sizes)
    assert view["reason"] == "at once, on n1: 8 GPUs"
    assert (view["needs_gpus"], view["predicted"]["runtime_s"]) == (8, 120.0)
    told = [(each["size"], each["runtime_s"], each["cost"]) for each in view["sizes"]]
    assert told == [
        ("1 GPU", 800.0, 1.0), ("2 GPUs", None, None), ("4 GPUs", None, None),
        ("8 GPUs", 120.0, 1.2),
    ]  # fmt: skip
    waits = rehearsal_view(None, said, sized[0].demand, [], sizes)
    assert (waits["needs_gpus"], waits["predicted"]["runtime_s"]) == (1, 800.0)
