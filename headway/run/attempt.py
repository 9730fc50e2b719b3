"""One attempt of a run on this node: its five steps, each safe to repeat.

A flow process holds nothing that matters. Every step first looks at what is
there already, so that the process that takes over from a killed one goes on
where that one was: the staged copy is in the cache, the lease in the ledger,
the container at the engine, and the log on the disk.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from headway.errors import (
    ContainerExists,
    HeadwayError,
    ImageMissing,
    ImpossibleDemand,
    LeaseLost,
    PolicyViolation,
    SourceUnreachable,
    StagingError,
    StagingTimedOut,
)
from headway.forecast import Forecaster, lease_terms
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease, Refuse, Resource, Wait
from headway.model.policy import GangNetwork, NetworkMode
from headway.model.profile import Profile
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, StepState
from headway.run import profiling
from headway.run.follow import Followed, Follower, Listener
from headway.run.here import NodeAttempt, forget_secrets
from headway.run.rendezvous import Meeting, own_address
from headway.run.settle import Settlement
from headway.run.silent_check import CHECKS
from headway.run.spec import container_spec, keep_secrets
from headway.run.upkeep import AttemptUpkeep
from headway.runtime import secretfiles
from headway.site import Site
from headway.staging.cache import StagedDataset
from headway.units import format_duration, format_size


class Attempt:
    """The current attempt of one run, on this node."""

    def __init__(
        self, site: Site, run_id: str, job: TrainingJob, meeting: Meeting | None = None
    ) -> None:
        """Take up the run; it is put into the ledger if it is not there yet.

        Args:
            site: This node's.
            run_id: The run.
            job: What it runs.
            meeting: Where a rank of a gang meets the others.
        """
        self.site = site
        self.run_id = run_id
        self.job = job
        self._ledger = site.ledger
        self._ledger.runs.enqueue(
            run_id,
            job.document(),
            name=job.name,
            owner=job.owner,
            team=job.team,
            pool=site.settings.pool,
            priority=0,
            submitted_at=site.clock.now(),
        )
        self.number = self._record.attempt
        self.here = NodeAttempt(site, run_id, self.number, job)
        self._override = self._record.demand_override or {}
        self._lease = self._ledger.leases.of_run(run_id)
        self.dataset: StagedDataset | None = None
        self.meeting = meeting
        """Where it meets the other ranks of its gang; None for a job on one node."""

    @property
    def _record(self) -> RunRecord:
        return self._ledger.runs.get(self.run_id)

    @property
    def _forecaster(self) -> Forecaster:
        return Forecaster(self.site)

    @property
    def container(self) -> str:
        """Name of this attempt's container."""
        return self.here.container

    @property
    def is_rank(self) -> bool:
        """Whether this is a part of a gang that another node's run leads."""
        return self.meeting is not None and self.meeting.rank > 0

    def meet(self, lease: Lease) -> Meeting | None:
        """Lead the job's gang from this node; None for a job on one node."""
        nodes = self.job.resources.nodes
        if nodes > 1 and self.meeting is None:
            port = next(port for port in lease.ports if port not in self.job.ports)
            # On a network of gangs the container's address is known once it runs; until
            # then, and to itself, its head goes by its own name.
            on_network = isinstance(self._network(), GangNetwork)
            address = self.container if on_network else own_address(self.site.settings)
            self.meeting = Meeting(self.run_id, self.number, address, port, 0, nodes)
        return self.meeting

    def meeting_place(self) -> Meeting | None:
        """Where the other ranks find this one, once its container runs; None if it has ended."""
        if self.meeting is None or not isinstance(self._network(), GangNetwork):
            return self.meeting
        status = self.site.runtime.inspect(self.container)
        if status is None or not status.address:
            return None
        return replace(self.meeting, address=status.address)

    def _network(self) -> NetworkMode | GangNetwork | None:
        """The network its container joins; raises `PolicyViolation` where the site has none."""
        found = self._forecaster.network(self.job.resources.nodes)
        if isinstance(found, Refuse):
            raise PolicyViolation("network", f"{found.value} node(s)", found.allowed)
        return found

    # ----- stage_data -----

    def stage_data(self, progress: Callable[[int, int | None], None]) -> StagedDataset | None:
        """Bring the data set to this node's cache; None when the job has none.

        Raises:
            InvalidInput: The job names a secret that jobs may not use here.
        """
        self._refuse_secrets()
        if self.job.dataset is not None:
            self.dataset = self.site.cache.stage(
                self.job.dataset, self.run_id, progress=progress, limit_s=self.job.max_runtime
            )
        return self.dataset

    def _time_left_s(self) -> float | None:
        """What staging has left of the time that the job gives itself; None without a limit."""
        if self.job.max_runtime is None:
            return None
        staged_s = sum(
            (step.ended_at - step.started_at).total_seconds()
            for step in self._ledger.runs.steps(self.run_id)
            if (step.attempt, step.name) == (self.number, "stage_data")
            and step.ended_at is not None
        )
        return max(0.0, self.job.max_runtime - staged_s)

    # ----- admit -----

    def admit(self) -> Lease | Wait:
        """Confirm the lease now that the data's real size is known, or say what is missing.

        Raises:
            ImpossibleDemand: No node of the site could ever hold it.
        """
        if self._container_exists():
            # It was admitted before a flow process died; it is only followed now, whatever
            # the node may still offer, and beside what was predicted before its start.
            if self._lease is None:
                raise LeaseLost(0, self.run_id, "its container outlived it")
            return self._lease
        prediction, demand = self.forecast()
        self._ledger.runs.predict(self.run_id, prediction, demand)
        record, rank = self._record, self.is_rank
        # A gang's parts are its leader's, which was asked.
        refusal = self._forecaster.refusal(
            demand,
            1 if rank else self.job.resources.nodes,
            "" if rank else record.team,
            pool=record.pool,
            queue=record.queue,
        )
        if refusal is not None:
            raise ImpossibleDemand(refusal.field, refusal.value, refusal.allowed)
        terms = lease_terms(self.site, prediction.runtime_high_s)
        reading = self.site.read_node()
        if self._lease is None and self.job.resources.nodes > 1:
            # Its claim was given back while this process started: only the plan claims them all.
            return Wait(Resource.TURN, "all its nodes are claimed at once, by a worker's plan")
        if self._lease is None:
            answer = self._ledger.leases.admit(
                self.run_id, self.site.settings.node, demand, reading=reading, **terms
            )
        else:
            answer = self._ledger.leases.resize(
                self._lease.lease_id, self._lease.token, demand, reading=reading, **terms
            )
        if isinstance(answer, Lease):
            self._lease = answer
            about = self._forecaster.gpu_type(answer)
            if about not in ("", "cpu", prediction.gpu_type):  # it was given another GPU after all
                self._ledger.runs.predict(self.run_id, self.forecast()[0], demand)
        return answer

    def forecast(self) -> tuple[Prediction, Demand]:
        """What is predicted and demanded, with the data's real size once it is staged.

        The worker said it before the claim; it is said anew only when staging
        found another size than the job declares, or the GPU is of another type
        than it is about, since loading the estimators takes longer than
        starting the container.
        """
        record = self._record
        size = self.dataset.size_bytes if self.dataset else None
        declared = self.job.dataset.size if self.job.dataset else None
        said, demand = record.prediction, record.demand
        gpu_type = self._forecaster.gpu_type(self._lease) if self._lease is not None else ""
        stands = said is not None and gpu_type in ("", "cpu", said.gpu_type)
        if said is not None and demand is not None and stands and size == declared:
            return said, demand
        on_cpu = demand is not None and not demand.gpus
        newly, needs = self._forecaster.forecast(
            self.job.without_gpus() if on_cpu else self.job,
            dataset_bytes=size,
            override=self._override,
            pool=record.pool,
            queue=record.queue,
            gpu_type="" if on_cpu else gpu_type,
        )
        # Only another size changes what it needs: it was granted that already.
        return newly, needs if demand is None or size != declared else demand

    # ----- train -----

    def launch(self, lease: Lease, secrets: Callable[[], Mapping[str, str]]) -> None:
        """Start the container, unless it was started before.

        Args:
            lease: What it may use.
            secrets: Gives the values of the job's secrets, by variable; asked once, before
                the container is created.

        Raises:
            InvalidInput: A secret cannot be used.
            LeaseLost: The lease is gone.
            RuntimeFailure: The container could not be created or started.
        """
        runtime = self.site.runtime
        if not self._container_exists():
            runtime.ensure_image(self.job.image)
            if self.job.secrets:
                self._refuse_secrets()
                keep_secrets(self.here, secrets())
            spec = container_spec(
                self.here,
                lease,
                dataset=self.dataset.path if self.dataset else None,
                meeting=self.meeting,
                network=self._network(),
            )
            with suppress(ContainerExists):  # another process of this very attempt was faster
                runtime.create(spec)
        self._ledger.runs.begin(
            self.run_id,
            self.number,
            lease.token,
            container=self.container,
            runtime=runtime.kind.value,
        )
        runtime.start(self.container)

    def train(
        self, lease: Lease, secrets: Callable[[], Mapping[str, str]], listener: Listener
    ) -> Followed:
        """Start the container, or find it again, and follow it to its end.

        Args:
            lease: What it may use.
            secrets: See `launch`.
            listener: Who is told.

        Raises:
            InvalidInput: A secret cannot be used.
            LeaseLost: The lease is gone; the container was stopped.
            RuntimeFailure: The container could not be created or started.
        """
        site = self.site
        self.launch(lease, secrets)
        hidden = secretfiles.read(self.here.secrets)
        if self.job.secrets and not hidden:
            # Somebody removed them under the container: its log is still nobody's to see.
            hidden = tuple(value.encode() for value in secrets().values())
        upkeep = AttemptUpkeep(self.here, lease, self.meeting, hidden)
        follower = Follower(
            runtime=site.runtime,
            clock=site.clock,
            name=self.container,
            listener=listener,
            upkeep=upkeep,
            gpus=site.gpus if lease.gpus else None,
            prediction=self.prediction,
            epochs=self.job.training.epochs,
            progress_pattern=self.job.progress,
            max_runtime_s=self._time_left_s(),
            grace_s=self.job.stop_grace,
            renew_every_s=site.settings.lease_ttl_s / 4,
            check_every_s=site.policy_settings.silent_after_s / CHECKS,
            secrets=hidden,
        )
        try:
            followed = follower.follow()
        except LeaseLost:
            site.runtime.stop(self.container, self.job.stop_grace)
            raise
        return replace(
            followed,
            cancellation=upkeep.last_cancellation(followed.status) or followed.cancellation,
            disk_peak_bytes=upkeep.disk_peak_bytes,
        )

    def _refuse_secrets(self) -> None:
        """Raise `InvalidInput` for a secret that jobs may not use on this site."""
        if not self.job.secrets:
            return
        refused = self.site.container_policy.refused_secret(self.job.secrets)
        # What runs already goes on as it was started.
        if refused is not None and not self._container_exists():
            raise refused

    def points(self) -> list[ProgressPoint]:
        """What the log of this attempt has said so far."""
        return self._ledger.progress.series(self.run_id, self.number)

    # ----- update_estimates -----

    def settle(self, followed: Followed) -> tuple[Exit, Measurement]:
        """Classify the end, keep prediction beside measurement, learn from it.

        The ledger has the exit before the container is removed: whoever dies
        in between, nobody runs a finished job again.
        """
        demand = self._record.demand or self.forecast()[1]
        return self._settlement.settle(followed, demand)

    @property
    def _settlement(self) -> Settlement:
        size = self.dataset.size_bytes if self.dataset else None
        return Settlement(self.here, self._lease, self.meeting, self._override, size)

    def profile(self, followed: Followed) -> Profile | None:
        """What the profile of this attempt says, where its job asks for one."""
        if not self.job.profile:
            return None
        return profiling.summarise(self.site, self.run_id, self.number, followed.runtime_s)

    # ----- its end -----

    def fail(self, exit_: Exit) -> Exit:
        """The attempt broke before its container had ended: again, or the end."""
        return self._settlement.conclude(exit_)

    def end(self, exit_: Exit, measured: Measurement | None = None) -> None:
        """End the run in the ledger; the first end counts."""
        self._ledger.runs.finish(self.run_id, exit_, measured or Measurement())

    def give_back(self, wait: Wait) -> None:
        """Not now after all: back to the line as the same attempt, with the reason."""
        token = self._lease.token if self._lease is not None else ""
        self._ledger.leases.give_back(self.run_id, token)
        self._ledger.runs.set_reason(
            self.run_id, wait.resource, wait.reason, expected_start_at=None
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Keep a step's start and end in the ledger."""
        runs = self._ledger.runs
        runs.step_started(self.run_id, self.number, name)
        try:
            yield
        except BaseException as error:
            runs.step_ended(self.run_id, self.number, name, StepState.FAILED, str(error))
            raise
        runs.step_ended(self.run_id, self.number, name, StepState.DONE)

    @property
    def prediction(self) -> Prediction:
        """What was said before the start."""
        return self._record.prediction or Prediction()

    def summary(self) -> str:
        """One line about a run that ended well."""
        record, said = self._record, self.prediction
        measured = record.measurement or Measurement()
        parts = [record.exit.message] if record.exit is not None else []
        if measured.runtime_s is not None:
            predicted = f" (predicted {format_duration(said.runtime_s)})" if said.runtime_s else ""
            parts.append(f"{format_duration(measured.runtime_s)}{predicted}")
        if measured.host_peak_bytes is not None:
            parts.append(f"host peak {format_size(measured.host_peak_bytes)}")
        if measured.gpu_peak_bytes is not None:
            parts.append(f"GPU peak {format_size(measured.gpu_peak_bytes)}")
        return ", ".join([*parts, f"outputs in {self.here.folder / 'outputs'}"])

    @property
    def ended(self) -> bool:
        """Nothing more will happen to this run."""
        return self._record.state is RunState.ENDED

    def clean_up(self) -> None:
        """Remove container, lease, ports and the claim on the staged copy. Idempotent.

        The log, the outputs and, until the run has ended, the checkpoints stay.
        """
        if self._container_exists():
            self.site.runtime.stop(self.container, self.job.stop_grace)
            self.site.remove_container(self.container, self.run_id)
        forget_secrets(self.site.settings, self.container)
        self.site.cache.release(self.run_id)
        self._ledger.leases.release(self.run_id)
        if self.ended:
            shutil.rmtree(self.here.folder / "checkpoint", ignore_errors=True)

    def _container_exists(self) -> bool:
        return self.site.runtime.inspect(self.container) is not None


def exit_of(error: HeadwayError) -> Exit:
    """What an error means for the run: the user's to correct, or the site's to repeat."""
    if isinstance(error, StagingTimedOut):
        return Exit(ExitKind.TIMED_OUT, None, str(error))
    wrong = isinstance(error, ImageMissing | PolicyViolation | StagingError)
    if wrong and not isinstance(error, SourceUnreachable):
        return Exit(ExitKind.REFUSED, None, str(error))
    return Exit(ExitKind.INFRASTRUCTURE, None, str(error))
