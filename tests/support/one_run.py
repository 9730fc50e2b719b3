"""One run on one node without a Prefect server: its flow processes, janitor and reconciler.

What they want to be started again is, as scheduler and worker would.
"""

import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from uuid import uuid4

from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Demand, Lease
from headway.model.prefect_view import PrefectView
from headway.model.run import ExitKind, RunState
from headway.node.flowlock import live_flow
from headway.node.janitor import Janitor
from headway.policy.agree import Change
from headway.policy.reconcile import Action
from headway.run.here import log_path
from headway.scheduler.reconciler import PrefectRun, Reconciler
from headway.site import Site
from headway.this_node import join_site
from headway.units import MIB
from tests.support.flow_process import begin_flow
from tests.support.leading import admit_in_term
from tests.support.queued import enqueue
from tests.support.site import PATIENCE_S, wait_for

DEMAND = Demand(64 * MIB, 0.1)


class OneRun:
    """One run of *site*'s node.

    Args:
        site: The node's.
        engine: Where its flows reach the engine; as everybody does if empty.
        namespace: Network namespace that they are in; that of the test if empty.
    """

    def __init__(self, site: Site, engine: str = "", namespace: str = "") -> None:
        self.site = site
        self.run_id = str(uuid4())
        self._engine = engine
        self._namespace = namespace
        self.flows: list[ForkServerProcess] = []
        self.says = PrefectView.ACTIVE
        """What Prefect says of the run."""
        join_site(self.site)
        self.janitor, self.reconciler = Janitor(self.site), Reconciler(self.site)

    def submit(self, seconds: float, image: str = "image:1") -> None:
        """Put the run into the queue and start it; its program lasts *seconds*."""
        program = f"echo start; sleep {seconds}; echo end"
        job = TrainingJob(
            name="job", image=image, command=["sh", "-c", program], stop_grace="1s",
            resources=Resources(host_memory="64MiB", cpus=0.1),
        )  # fmt: skip
        enqueue(self.site, self.run_id, job)
        self.start()

    def start(self) -> None:
        """What the worker does for a run that is scheduled."""
        if self.record().state is RunState.WAITING:
            lease = admit_in_term(
                self.site.ledger,
                self.run_id,
                self.site.settings.node,
                DEMAND,
                ttl_s=self.site.settings.lease_ttl_s,
            )
            assert isinstance(lease, Lease), lease
        self.flows.append(
            begin_flow(self.site.settings, self.run_id, self._engine, self._namespace)
        )

    def look(self) -> None:
        """One round of reconciler and janitor; what they want to be started again is."""
        asked = self.reconciler.unsettled([self.run_id])
        said = {run.run_id: PrefectRun(self.says, state_id="seen") for run in asked}
        changes = {each.change for each in self.reconciler.round(asked, said)}
        runs = self.janitor.unsettled([self.run_id])
        starting = frozenset({self.run_id} if self.begins() else ())
        actions = {each.action for each in self.janitor.round(runs, starting)}
        if Action.START_FLOW in actions or Change.RESCHEDULE in changes:
            self.start()

    def begins(self) -> bool:
        """Whether a flow process was started and holds nothing yet."""
        held = live_flow(self.site.settings.state_dir, self.run_id) is not None
        return not held and any(each.is_alive() for each in self.flows)

    def until_ended(self) -> ExitKind:
        """Look again and again until the run has ended; how."""
        deadline = time.monotonic() + PATIENCE_S
        while (exit_ := self.record().exit) is None:
            assert time.monotonic() < deadline, self.record()
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
        run = self.record()
        return left + ([f"attempt {run.attempt}"] if run.attempt != 1 else [])

    def _left(self) -> list[str]:
        lease = self.site.ledger.leases.of_run(self.run_id)
        return [
            *(["a lease"] if lease is not None else []),
            *(each.name for each in self.site.runtime.containers()),
            *(f"flow {each.pid}" for each in self.flows if each.is_alive()),
            *(str(each) for each in Path("/sys/fs/cgroup").glob(f"*/headway/*{self.run_id}*")),
            *(str(each) for each in Path("/sys/fs/cgroup").glob(f"headway/*{self.run_id}*")),
        ]

    def said(self) -> list[str]:
        """What the program has printed, in all of its starts."""
        log = log_path(self.site.settings, self.run_id, 1)
        return log.read_text().split() if log.exists() else []

    def until_said(self, word: str) -> None:
        """Wait until the program has printed *word*."""
        wait_for(lambda: word in self.said(), lambda: f"{self.said()}: {self.record()}")

    def record(self) -> RunRecord:
        """The run in the ledger."""
        return self.site.ledger.runs.get(self.run_id)

    def close(self) -> None:
        """End whatever a failed test has left."""
        for each in self.flows:
            each.kill()
            each.join()
        for container in self.site.runtime.containers():
            self.site.runtime.remove(container.name)
        self.site.ledger.close()
