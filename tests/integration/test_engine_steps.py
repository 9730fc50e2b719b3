"""A flow that dies, or whose run is cancelled, between any two steps that it takes on its engine.

The flow is a process of its own, without a Prefect server. The janitor of its node works beside
it, and what the janitor wants to be scheduled again is started, as the node's worker would.
"""

import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from uuid import uuid4

import pytest

from headway.clock import SystemClock
from headway.model.job import Resources, TrainingJob
from headway.model.lease import Demand, Lease
from headway.model.run import ExitKind, RunState
from headway.node.flowrun import live_flow
from headway.node.janitor import Janitor
from headway.node.mending import PrefectRun
from headway.policy.reconcile import Action, PrefectView
from headway.run.here import log_path
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support.flow_process import begin_flow
from tests.support.queued import enqueue
from tests.support.relay import Relay, Trap, When
from tests.support.site import PATIENCE_S

pytestmark = pytest.mark.docker

RUN = str(uuid4())
"""Its own: control groups of others' runs are left alone."""
LONG = pytest.mark.long
"""For cases that the others tell nearly as well: each takes seconds."""
STEPS = {
    "pull": "POST /images/create",
    "create": "POST /containers/create",
    "start": "POST /containers/.*/start",
    "follow": "POST /containers/.*/wait",
    "settle": "GET /events",
    "remove": "DELETE /containers/",
}
"""What a flow asks its engine for, in this order; it writes to the ledger before each of them."""


class Bench:
    """One run on a node with an engine: its flow processes, and the node's janitor."""

    def __init__(self, home: Path, image: str) -> None:
        """The flows reach the engine through a relay, the janitor does not."""
        self.site = Site(Settings(home=home / "home", runtime="docker", node="here"), SystemClock())
        self.relay = Relay(home / "engine.sock")
        self.image = image
        self.flows: list[ForkServerProcess] = []
        self.says = PrefectView.ACTIVE
        """What Prefect says of the run."""
        join_site(self.site)
        self.janitor = Janitor(self.site)

    def submit(self, seconds: float, image: str = "") -> None:
        """Put the run into the queue and start it."""
        program = f"echo start; sleep {seconds}; echo end"
        self.job = TrainingJob(
            name="job", image=image or self.image, command=["sh", "-c", program], stop_grace="1s",
            resources=Resources(host_memory="64MiB", cpus=0.1),
        )  # fmt: skip
        enqueue(self.site, RUN, self.job)
        self.start()

    def start(self) -> None:
        """What the worker does for a run that is scheduled."""
        if self.site.ledger.runs.get(RUN).state is RunState.WAITING:
            lease = self.site.ledger.leases.admit(
                RUN, "here", Demand(64 * MIB, 0.1), reading=None, ttl_s=900.0
            )
            assert isinstance(lease, Lease), lease
        self.flows.append(begin_flow(self.site.settings, RUN, self.job, self.relay.address))

    def look(self) -> None:
        """One round of the janitor; what it schedules again is started."""
        runs = self.janitor.unsettled([RUN])
        said = {run.run_id: PrefectRun(self.says, state_id="seen") for run in runs}
        starting = frozenset({RUN} if self.begins() else ())
        told = self.janitor.round(runs, said, starting)
        if Action.RESCHEDULE in {each.action for each in told}:
            self.start()

    def begins(self) -> bool:
        """Whether a flow process was started and holds nothing yet."""
        held = live_flow(self.site.settings.state_dir, RUN) is not None
        return not held and any(each.is_alive() for each in self.flows)

    def until_ended(self) -> ExitKind:
        """Look again and again until the run has ended; how."""
        deadline = time.monotonic() + PATIENCE_S
        while (exit_ := self.site.ledger.runs.get(RUN).exit) is None:
            assert time.monotonic() < deadline, self.site.ledger.runs.get(RUN)
            self.look()
            time.sleep(0.1)
        return exit_.kind

    def broken(self) -> list[str]:
        """Which promises are broken once the janitor had time; the program itself says the rest."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._left()) and time.monotonic() < deadline:
            self.look()
            self.janitor.wait_for_stops()
            time.sleep(0.1)
        run = self.site.ledger.runs.get(RUN)
        return left + ([f"attempt {run.attempt}"] if run.attempt != 1 else [])

    def _left(self) -> list[str]:
        lease = self.site.ledger.leases.of_run(RUN)
        return [
            *(["a lease"] if lease is not None else []),
            *(each.name for each in self.site.runtime.containers()),
            *(f"flow {each.pid}" for each in self.flows if each.is_alive()),
            *(str(each) for each in Path("/sys/fs/cgroup").glob(f"*/headway/*{RUN}*")),
            *(str(each) for each in Path("/sys/fs/cgroup").glob(f"headway/*{RUN}*")),
        ]

    def said(self) -> list[str]:
        """What the program has printed, in all of its starts."""
        log = log_path(self.site.settings, RUN, 1)
        return log.read_text().split() if log.exists() else []

    def caught(self, trap: Trap) -> None:
        """Wait until the flow is killed or held."""
        assert trap.caught.wait(PATIENCE_S), f"{self.flows} {self.site.ledger.runs.get(RUN)}"
        assert trap.pid == self.flows[-1].pid

    def close(self) -> None:
        """End whatever a failed test has left."""
        for each in self.flows:
            each.kill()
            each.join()
        for container in self.site.runtime.containers():
            self.site.runtime.remove(container.name)
        self.relay.close()
        self.site.ledger.close()


@pytest.fixture
def bench(tmp_path: Path, busybox_image: str) -> Iterator[Bench]:
    made = Bench(tmp_path, busybox_image)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("create", When.BEFORE),
        ("create", When.AFTER),
        ("start", When.BEFORE),
        ("start", When.AFTER),
        *(pytest.param("follow", when, marks=LONG) for when in When),
        ("settle", When.BEFORE),
        pytest.param("settle", When.AFTER, marks=LONG),
        *(pytest.param("remove", when, marks=LONG) for when in When),
    ],
)
def test_a_flow_killed_between_two_steps_on_its_container_costs_nothing(
    bench: Bench, step: str, when: When
) -> None:
    trap = bench.relay.kill_at(STEPS[step], when)
    bench.submit(0.5)
    bench.caught(trap)
    assert bench.until_ended() is ExitKind.OK
    assert bench.broken() == []
    assert bench.said() == ["start", "end"]


@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("pull", When.BEFORE),
        pytest.param("create", When.BEFORE, marks=LONG),
        ("create", When.AFTER),
        ("start", When.BEFORE),
        pytest.param("start", When.AFTER, marks=LONG),
        pytest.param("follow", When.BEFORE, marks=LONG),
        ("settle", When.BEFORE),
    ],
)
def test_a_run_is_cancelled_while_its_flow_waits_for_the_engine(
    bench: Bench, step: str, when: When
) -> None:
    with bench.relay.held_at(STEPS[step], when) as trap:
        seconds = 0.5 if step == "settle" else 600.0
        bench.submit(seconds, "headway-test/nowhere:held" if step == "pull" else "")
        bench.caught(trap)
        bench.says = PrefectView.CANCELLING
        assert bench.until_ended() is ExitKind.CANCELLED
    assert bench.broken() == []
    assert bench.site.ledger.runs.get(RUN).exit.kind is ExitKind.CANCELLED
    assert ("end" in bench.said()) == (step == "settle")


def test_a_run_that_is_cancelled_in_its_clean_up_has_ended_as_it_did(bench: Bench) -> None:
    with bench.relay.held_at(STEPS["remove"], When.BEFORE) as trap:
        bench.submit(0.5)
        bench.caught(trap)
        bench.says = PrefectView.CANCELLING
        bench.look()
    assert bench.broken() == []
    assert bench.until_ended() is ExitKind.OK


def test_a_claimed_run_is_cancelled_before_its_flow_has_begun(bench: Bench) -> None:
    bench.submit(600.0)
    bench.says = PrefectView.CANCELLING
    assert bench.until_ended() is ExitKind.CANCELLED
    assert bench.broken() == []
    assert "end" not in bench.said()
