"""Ten one-minute jobs on one slot, played through on a simulated clock: what each was promised."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headway.estimate.remaining.remaining_time import RemainingTime
from headway.estimate.usual import Lasted, Usual, instead_of_prior, kind_of
from headway.ledger.pools import PoolSnapshot
from headway.ledger.records import RunRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.model.run import Prediction, RunState
from headway.policy.fit import WaitingRun
from headway.policy.outlook import around
from headway.policy.plan import Start, Stay, plan
from headway.policy.pool import NodeView
from headway.policy.settings import PolicySettings
from headway.scheduler.limits import Gates
from headway.scheduler.snapshot import Known, length, running_run, usual_of
from headway.units import DAY_S, GIB, HOUR_S

T0 = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
ITERATIONS = 100
STEP_S = 5
PRIOR = Prediction(HOUR_S, 120.0, DAY_S, basis="prior: nothing like it has run")


class Slot:
    """A node with room for one run at a time, and a line of ten, of which nothing is known."""

    def __init__(self, lasting_s: list[float], *, logs: bool) -> None:
        self.lasting_s, self.logs = lasting_s, logs
        self.line = [f"run-{at}" for at in range(len(lasting_s))]
        self.ended: list[Lasted] = []
        self.started: dict[str, float] = {}
        self.promises: list[tuple[str, float, Stay]] = []
        self.now_s = 0.0
        self.following: RemainingTime | None = None
        self.running: str | None = None

    def record(self, run_id: str) -> RunRecord:
        begun = self.started.get(run_id)
        nothing = dict.fromkeys(RunRecord.__dataclass_fields__)
        return RunRecord(
            **nothing
            | {
                "run_id": run_id,
                "name": run_id,
                "owner": "ada",
                "team": "t",
                "job": {"image": "i", "name": "digits"},
                "attempt": 1,
                "queue": "default",
                "priority": 0,
                "state": RunState.WAITING if begun is None else RunState.RUNNING,
                "prediction": PRIOR,
                "started_at": None if begun is None else T0 + timedelta(seconds=begun),
            }
        )

    def standing(self) -> dict[str, ProgressSnapshot]:
        if self.running is None or self.following is None:
            return {}
        elapsed_s = self.now_s - self.started[self.running]
        left = self.following.at(elapsed_s)
        share = elapsed_s / self.lasting_s[int(self.running[4:])]
        tells = self.logs and elapsed_s >= STEP_S
        done = share if tells else None
        at = T0 + timedelta(seconds=self.now_s)
        said = ProgressSnapshot(
            self.running, 1, at, elapsed_s, done, left.remaining_s, left.low_s, left.high_s
        )
        return {self.running: said}

    def step(self) -> None:
        """Five seconds of the simulated clock."""
        if self.running is not None and self.following is not None:
            elapsed_s = self.now_s - self.started[self.running]
            lasts_s = self.lasting_s[int(self.running[4:])]
            if elapsed_s >= lasts_s:
                record = self.record(self.running)
                self.ended.append(Lasted(kind_of(record.job, record.owner, record.team), lasts_s))
                self.running = self.following = None
            for t_s in range(int(elapsed_s) - STEP_S + 1, int(elapsed_s) + 1):
                if self.following is not None and self.logs:
                    self.following.update(t_s, t_s / lasts_s * ITERATIONS, ITERATIONS)
        self.plan()
        self.now_s += STEP_S

    def plan(self) -> None:
        now, said = T0 + timedelta(seconds=self.now_s), self.standing()
        holders = [self.record(self.running)] if self.running is not None else []
        usual = usual_of(self.ended, holders, said, shared=False)
        seen = PoolSnapshot(now, (), (), tuple(holders), {}, {}, None, ())
        node = Node("a", "pool", Capacity(1.0, 64 * GIB))
        leases = tuple(
            Lease(1, r.run_id, 1, "a", "t", GIB, 1.0, granted_at=r.started_at, expires_at=now,
                  predicted_end_at=r.started_at + timedelta(days=1), gpus=(), ports={})
            for r in holders
        )  # fmt: skip
        got = plan(
            [NodeView(node, leases)],
            [
                WaitingRun.of(
                    run_id,
                    Demand(GIB, 1.0),
                    T0 + timedelta(milliseconds=int(run_id[4:])),
                    settings=PolicySettings(),
                    median_s=PRIOR.runtime_s,
                    high_s=PRIOR.runtime_high_s,
                    lasts=length(None, kind_of(self.record(run_id).job, "ada", "t"), usual),
                    name=run_id,
                    team="t",
                )
                for run_id in self.line
            ],
            [running_run(r, seen, Gates(), Known(said, usual)) for r in holders],
            now=now,
            settings=PolicySettings(),
        )
        for entry in got.entries:
            if isinstance(entry, Start):
                self.running = entry.run_id
                self.started[entry.run_id] = self.now_s
                self.following = RemainingTime(
                    PRIOR.runtime_s, PRIOR.runtime_low_s, PRIOR.runtime_high_s
                )
                self.line.remove(entry.run_id)
            else:
                self.promises.append((entry.run_id, self.now_s, entry))

    def until_all_have_started(self) -> None:
        while self.line:
            self.step()


LASTING_S = [60.0, 55.0, 70.0, 60.0, 65.0, 50.0, 60.0, 75.0, 60.0, 60.0]


@pytest.mark.parametrize("logs", [True, False], ids=["logs-tell", "logs-are-silent"])
def test_each_promise_of_ten_one_minute_jobs_is_near_what_came(logs: bool) -> None:
    slot = Slot(LASTING_S, logs=logs)
    slot.until_all_have_started()
    inside = []
    for run_id, said_s, stay in slot.promises:
        came_s = slot.started[run_id]
        if stay.expected_at is None:
            # Only until the first log tells, else until the first has ended; and it is said why.
            assert said_s < (20 if logs else 65)
            assert stay.unknown == "nothing is known of how long run-0 runs"
            continue
        promised_s = (stay.expected_at - T0).total_seconds()
        assert abs(promised_s - came_s) <= max(25.0, 0.4 * (came_s - said_s)), (run_id, said_s)
        early_s, late_s = ((at - T0).total_seconds() for at in (stay.earliest_at, stay.latest_at))
        assert late_s - said_s < 1800  # wide, and no day
        inside.append(early_s - STEP_S <= came_s <= late_s + STEP_S)
    assert len(inside) > 400
    assert sum(inside) / len(inside) >= 0.8


def test_the_upper_quantile_of_the_lease_still_guards_who_may_pass() -> None:
    """People are told a minute; what is promised to the run goes by the prior's day."""
    slot = Slot(LASTING_S, logs=True)
    for _ in range(6):
        slot.step()
    _, said_s, stay = slot.promises[-9]
    assert stay.expected_at is not None
    assert (stay.expected_at - T0).total_seconds() < said_s + 60
    assert stay.reserved == ("a",)


def test_what_others_lasted_is_said_of_no_other_teams_run() -> None:
    theirs = [Lasted(kind_of({"image": "i", "name": "n"}, "bob", "vision"), 60.0)] * 9
    asked = kind_of({"image": "i", "name": "n"}, "bob", "speech")
    assert Usual(theirs).of(asked) is None
    assert Usual(theirs, shared=True).of(asked) is not None
    assert Usual(theirs).of(replace(asked, team="vision")) is not None


def test_a_site_that_has_run_others_says_what_they_lasted() -> None:
    others = [
        Lasted(replace(kind_of({}, "bob", "team"), recipe=f"r{at}", image="other"), 60.0 * (at + 1))
        for at in range(3)
    ]
    span, basis = Usual(others).of(kind_of({"image": "i", "name": "digits"}, "ada", "team"))
    assert span.median_s == pytest.approx(120.0)
    assert basis == "prior: as 3 runs of its size lasted"
    assert span.low_s < 30
    assert 480 < span.high_s < DAY_S
    assert Usual(others[:2]).of(kind_of({"image": "i"}, "ada", "team")) is None


def test_what_others_last_stands_in_the_place_of_the_prior_and_ends_at_the_limit() -> None:
    job = TrainingJob(name="digits", image="i", command=["x"], max_runtime="90s")
    kind = kind_of(job.document(), "ada", "team")
    assert kind.recipe == job.recipe()
    found = Usual([Lasted(kind, 60.0)]).of(kind)
    said = instead_of_prior(PRIOR, found)
    assert said.runtime_s == pytest.approx(60.0)
    assert said.runtime_high_s == 90.0
    assert said.basis == "prior: what 1 run of its recipe and size lasted; nothing like it has run"
    assert said.told == found[0]
    assert (said.learnt, PRIOR.told) == (None, None)  # so it is looked up again while it waits
    assert instead_of_prior(PRIOR, None) == PRIOR


def test_the_nearest_group_speaks() -> None:
    mine = kind_of({"image": "i", "name": "digits", "resources": {"gpus": 2}}, "ada", "team")
    same = Lasted(mine, 100.0)
    small = Lasted(replace(mine, gpus=0), 1000.0)
    others = [Lasted(replace(mine, recipe=f"r{at}", owner="bob"), 10.0) for at in range(5)]
    usual = Usual([same, small, *others])
    assert usual.of(mine)[0].median_s == pytest.approx(100.0)
    assert usual.of(replace(mine, gpus=4))[1] == "prior: what 2 runs of its recipe lasted"
    mine_too = replace(mine, recipe="new")
    assert usual.of(mine_too)[1] == "prior: as 1 run of its owner, image and size lasted"
    other = replace(mine_too, owner="eve")
    assert usual.of(other)[1] == "prior: as 6 runs of its image and size lasted"
    # Who is not known is nobody's like.
    nameless = [Lasted(replace(mine, recipe=f"r{at}", owner=""), 10.0) for at in range(3)]
    assert "owner" not in Usual(nameless).of(replace(mine, owner="", recipe="new"))[1]


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        ((0, 0, 0), "about 12:00"),
        ((-4, 0, 9), "about 12:00 (11:56–12:09)"),
        ((-4, 0, 900), "about 12:00 (11:56–06 Jan 03:00)"),
        ((1430, 1440, 1450), "about 06 Jan 12:00 (11:50–12:10)"),
    ],
)
def test_a_moment_with_its_interval(minutes: tuple[int, int, int], said: str) -> None:
    first, expected, last = (T0 + timedelta(minutes=each) for each in minutes)
    assert around(first, expected, last, T0) == said


@pytest.mark.parametrize("limit", ["90s", 90, 90.0])
def test_the_time_limit_of_a_job_is_read_as_it_is_kept(limit: object) -> None:
    assert kind_of({"max_runtime": limit}, "ada", "team").limit_s == 90.0
    assert kind_of({"max_runtime": None}, "ada", "team").limit_s == float("inf")
