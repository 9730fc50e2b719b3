"""One attempt of a run on this node: its five steps, each safe to repeat.

A flow process holds nothing that matters. Every step first looks at what is
there already, so that the process that takes over from a killed one goes on
where that one was: the staged copy is in the cache, the lease in the ledger,
the container at the engine, and the log on the disk.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headway.errors import (
    ContainerExists,
    EngineUnreachable,
    HeadwayError,
    ImageMissing,
    ImpossibleDemand,
    InvalidInput,
    LeaseLost,
    PolicyViolation,
    SourceUnreachable,
    StagingError,
    StagingTimedOut,
)
from headway.estimate.features import settings_of
from headway.forecast import Forecaster, lease_terms
from headway.home import have_passable
from headway.ledger.records import RunRecord
from headway.ledger.standings import NOT_KEPT_YET
from headway.model.attempt import Standing
from headway.model.job import TrainingJob
from headway.model.lease import Demand, Lease, Refuse, Resource, Wait
from headway.model.policy import GangNetwork, NetworkMode
from headway.model.profile import Profile
from headway.model.progress import ProgressPoint
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, StepState
from headway.model.trace import UTILISATION, Trace
from headway.policy.demand import (
    after_gpu_out_of_memory,
    after_out_of_memory,
    largest_gpu_bytes,
    largest_host_bytes,
    runs_again,
)
from headway.policy.disk import DiskUse, why_too_much
from headway.policy.gang import verdict, why_stop
from headway.policy.shortage import Shortage
from headway.policy.silent import exit_told
from headway.run.follow import Followed, Follower, Listener, Watched
from headway.run.memory_shortage import said_so, shortage_of
from headway.run.profiling import conclude, wrapping
from headway.run.rendezvous import Meeting, other_ranks, own_address, why_leave
from headway.run.silent_check import LOOKS, Vigil
from headway.runtime import secretfiles
from headway.runtime.diskuse import DiskMeter
from headway.runtime.port import BindMount, ContainerSpec
from headway.runtime.redact import LEAST_CHARACTERS, MOST_CHARACTERS, FileRedactor
from headway.settings import Settings
from headway.site import Site, as_ids
from headway.staging.cache import StagedDataset
from headway.this_node import lost_gpus, read_node, remove_container
from headway.units import format_duration, format_size

DATA, OUTPUTS, CHECKPOINT = "/data", "/outputs", "/checkpoint"
_RANKS_EVERY_S = 1.0
_DISK_GRACE_S = 3.0


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
        site.ledger.runs.enqueue(
            run_id,
            job.document(),
            name=job.name,
            owner=job.owner,
            team=job.team,
            pool=site.settings.pool,
            priority=0,
            submitted_at=site.clock.now(),
        )
        record = site.ledger.runs.get(run_id)
        self.number = record.attempt
        self._override = record.demand_override
        self._lease = site.ledger.leases.of_run(run_id)
        self.dataset: StagedDataset | None = None
        self._container_folders: tuple[Path, ...] = ()
        self._disk = DiskMeter(
            site.clock,
            {
                "outputs, checkpoint and log": lambda: (self.folder,),
                "elsewhere in its container": self._own_folders,
            },
            self._processes,
        )
        self.meeting = meeting
        """Where it meets the other ranks of its gang; None for a job on one node."""

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
        found = Forecaster(self.site).network(self.job.resources.nodes)
        if isinstance(found, Refuse):
            raise PolicyViolation("network", f"{found.value} node(s)", found.allowed)
        return found

    @property
    def container(self) -> str:
        """Name of this attempt's container."""
        return container_name(self.run_id, self.number)

    @property
    def folder(self) -> Path:
        """Log, outputs and checkpoints of the run on this node."""
        return self.site.settings.runs_dir / self.run_id

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
        mine = [s for s in self.site.ledger.runs.steps(self.run_id) if s.attempt == self.number]
        staged_s = sum(
            (step.ended_at - step.started_at).total_seconds()
            for step in mine
            if step.name == "stage_data" and step.ended_at is not None
        )
        return max(0.0, self.job.max_runtime - staged_s)

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
        self.site.ledger.runs.predict(self.run_id, prediction, demand)
        record, rank = self.site.ledger.runs.get(self.run_id), self.is_rank
        # A gang's parts are its leader's, which was asked.
        refusal = Forecaster(self.site).refusal(
            demand,
            1 if rank else self.job.resources.nodes,
            "" if rank else record.team,
            pool=record.pool,
            queue=record.queue,
        )
        if refusal is not None:
            raise ImpossibleDemand(refusal.field, refusal.value, refusal.allowed)
        terms = lease_terms(self.site, prediction.runtime_high_s)
        reading = read_node(self.site)
        if self._lease is None and self.job.resources.nodes > 1:
            # Its claim was given back while this process started: only the plan claims them all.
            return Wait(Resource.TURN, "all its nodes are claimed at once, by a worker's plan")
        if self._lease is None:
            answer = self.site.ledger.leases.admit(
                self.run_id, self.site.settings.node, demand, reading=reading, **terms
            )
        else:
            answer = self.site.ledger.leases.resize(
                self._lease.lease_id, self._lease.token, demand, reading=reading, **terms
            )
        if isinstance(answer, Lease):
            self._lease = answer
            about = Forecaster(self.site).gpu_type(answer)
            if about not in ("", "cpu", prediction.gpu_type):  # it was given another GPU after all
                self.site.ledger.runs.predict(self.run_id, self.forecast()[0], demand)
        return answer

    def forecast(self) -> tuple[Prediction, Demand]:
        """What is predicted and demanded, with the data's real size once it is staged.

        The worker said it before the claim; it is said anew only when staging
        found another size than the job declares, or the GPU is of another type
        than it is about, since loading the estimators takes longer than
        starting the container.
        """
        record = self.site.ledger.runs.get(self.run_id)
        size = self.dataset.size_bytes if self.dataset else None
        declared = self.job.dataset.size if self.job.dataset else None
        said, demand = record.prediction, record.demand
        gpu_type = Forecaster(self.site).gpu_type(self._lease) if self._lease is not None else ""
        stands = said is not None and gpu_type in ("", "cpu", said.gpu_type)
        if said is not None and demand is not None and stands and size == declared:
            return said, demand
        on_cpu = demand is not None and not demand.gpus
        newly, needs = Forecaster(self.site).forecast(
            self.job.without_gpus() if on_cpu else self.job,
            dataset_bytes=size,
            override=self._override,
            pool=record.pool,
            queue=record.queue,
            gpu_type="" if on_cpu else gpu_type,
        )
        # Only another size changes what it needs: it was granted that already.
        return newly, needs if demand is None or size != declared else demand

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
        runtime, ledger = self.site.runtime, self.site.ledger
        if not self._container_exists():
            runtime.ensure_image(self.job.image)
            if self.job.secrets:
                self._refuse_secrets()
                self._keep_secrets(secrets())
            with suppress(ContainerExists):  # another process of this very attempt was faster
                runtime.create(self._spec(lease))
        ledger.runs.begin(
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
        runtime, ledger = self.site.runtime, self.site.ledger
        self.launch(lease, secrets)
        ttl_s = self.site.settings.lease_ttl_s
        hidden = secretfiles.read(self._secrets)
        if self.job.secrets and not hidden:
            # Somebody removed them under the container: its log is still nobody's to see.
            hidden = tuple(value.encode() for value in secrets().values())
        follower = Follower(
            runtime,
            self.site.clock,
            listener,
            renew=lambda: ledger.leases.renew(lease.lease_id, lease.token, ttl_s),
            record=self._keep_points,
            stand=self._keep_standing,
            look=Vigil(self.site, lease).look,
            gpus=self.site.gpus if lease.gpus else None,
            renew_every_s=ttl_s / 4,
            halt=self._why_halt,
            look_every_s=self.site.policy_settings.silent_after_s / LOOKS,
            secrets=hidden,
            strike=FileRedactor(self._log, hidden).strike,
        )
        try:
            followed = follower.follow(
                self.container,
                prediction=self.prediction,
                epochs=self.job.training.epochs,
                progress_pattern=self.job.progress,
                max_runtime_s=self._time_left_s(),
                grace_s=self.job.stop_grace,
            )
        except LeaseLost:
            runtime.stop(self.container, self.job.stop_grace)
            raise
        return self._within_its_disk(followed)

    def _within_its_disk(self, followed: Followed) -> Followed:
        """*followed*, halted if it has taken more disk than it asked for, however it ended.

        What it wrote last is seen, and what it was stopped for by a flow that has died since.
        """
        too_much = self._too_much_disk(self._disk.look_at_all())
        if not too_much or not self.job.resources.disk:
            return followed
        code = followed.status.exit_code
        return replace(followed, halted=Exit(ExitKind.FAILED, code, too_much))

    def _too_much_disk(self, uses: Sequence[DiskUse]) -> str:
        reserve = self.site.node_settings.reserve_disk
        return why_too_much(
            uses,
            self.job.resources.disk or None,
            None if isinstance(reserve, str) else reserve,
        )

    def _own_folders(self) -> tuple[Path, ...]:
        if not self._container_folders:  # they stay the same while there is a container
            self._container_folders = self.site.runtime.own_folders(self.container)
        return self._container_folders

    def _processes(self) -> tuple[int, ...]:
        try:
            status = self.site.runtime.inspect(self.container)
        except EngineUnreachable:
            return ()  # they are counted again once it answers
        return () if status is None else status.pids

    @property
    def _secrets(self) -> Path:
        """Where the secrets of this attempt's container lie."""
        return self.site.settings.secrets_dir / self.container

    @property
    def _log(self) -> Path:
        return self.folder / "log" / f"attempt-{self.number}.log"

    def _refuse_secrets(self) -> None:
        """Raise `InvalidInput` for a secret that jobs may not use on this site."""
        if not self.job.secrets:
            return
        refused = self.site.container_policy.refused_secret(self.job.secrets)
        # What runs already goes on as it was started.
        if refused is not None and not self._container_exists():
            raise refused

    def _keep_secrets(self, values: Mapping[str, str]) -> None:
        """Lay *values* down where the program, and nobody else, reads them."""
        for variable, value in values.items():
            if not LEAST_CHARACTERS <= len(value.strip()) <= MOST_CHARACTERS:
                raise InvalidInput(
                    f"secrets.{variable}",
                    self.job.secrets[variable],
                    f"a secret of {LEAST_CHARACTERS} to {MOST_CHARACTERS} characters can be struck "
                    "out of logs; give the block such a value",
                )
        secretfiles.write(self._secrets, values, as_ids(self.site.container_user))

    def _why_halt(self) -> Exit | None:
        too_much = self._too_much_disk(self._disk.look())
        if too_much:
            # It goes on writing in its grace time: it gets little of it.
            self.site.runtime.stop(self.container, min(self.job.stop_grace, _DISK_GRACE_S))
            return Exit(ExitKind.FAILED, None, too_much)
        if self.meeting is None:
            return None
        if self.is_rank:
            return why_leave(self.site, self.meeting)
        begun = self.site.ledger.runs.get(self.run_id).started_at
        waited_s = (self.site.ledger.now() - begun).total_seconds() if begun else 0.0
        return why_stop(other_ranks(self.site, self.meeting), waited_s)

    def _of_the_gang(self, own: Exit) -> Exit:
        """How the gang ended whose rank 0 ended as *own*; waits for the others' ends."""
        if self.meeting is None or self.is_rank:
            return own
        clock = self.site.clock
        begun_s = clock.monotonic_s()
        while True:
            waited_s = clock.monotonic_s() - begun_s
            found = verdict(own, other_ranks(self.site, self.meeting), waited_s)
            if found is not None:
                return found
            clock.sleep(_RANKS_EVERY_S)

    def _keep_points(self, before: int, points: Sequence[ProgressPoint]) -> None:
        self.site.ledger.progress.append(self.run_id, self.number, points, first=before)

    def _keep_standing(self, now: Watched) -> None:
        left = now.remaining
        self.site.ledger.standings.keep(
            Standing(
                self.run_id,
                self.number,
                NOT_KEPT_YET,
                now.elapsed_s,
                done_frac=now.done_frac,
                remaining_s=left.remaining_s if left else None,
                low_s=left.low_s if left else None,
                high_s=left.high_s if left else None,
            )
        )

    def points(self) -> list[ProgressPoint]:
        """What the log of this attempt has said so far."""
        return self.site.ledger.progress.series(self.run_id, self.number)

    def settle(self, followed: Followed) -> tuple[Exit, Measurement]:
        """Classify the end, keep prediction beside measurement, learn from it.

        The ledger has the exit before the container is removed: whoever dies
        in between, nobody runs a finished job again.
        """
        exit_ = followed.own_exit()
        usage = self.site.runtime.usage(self.container)
        record = self.site.ledger.runs.get(self.run_id)
        preempted = record.preempted_for is not None
        own = exit_
        if exit_.kind is ExitKind.OK or not preempted:
            own = self._told(exit_)
            exit_ = followed.halted or self._of_the_gang(own)
            # Ranks fail when rank 0, told to stop for another run, leaves them with exit 0.
            preempted &= exit_ is not own
        if preempted and exit_.kind is not ExitKind.OK:
            exit_ = Exit(
                ExitKind.PREEMPTED,
                exit_.code,
                f"stopped for run {record.preempted_for} of a higher priority; it goes on from "
                "its checkpoint when there is room again",
            )
        demand = record.demand or self.forecast()[1]
        measured = Measurement(
            runtime_s=followed.runtime_s,
            host_peak_bytes=usage.host_peak_bytes,
            host_cache_bytes=usage.host_cache_bytes,
            gpu_peak_bytes=followed.gpu_peak_bytes,
            gpu_utilisation_frac=followed.gpu_utilisation_frac,
            cpu_s=usage.cpu_s,
            disk_peak_bytes=self._disk.peak_bytes,
            # What a gang costs is said once, on the run that leads.
            cost=None
            if self.is_rank
            else Forecaster(self.site).cost(
                demand, followed.runtime_s, nodes=self.job.resources.nodes
            ),
        )
        short = Shortage("", 0)
        if exit_.kind is ExitKind.GPU_OUT_OF_MEMORY:
            if self._lease is not None and exit_ is own:  # not another rank of its gang
                short = shortage_of(self.site, self._lease, followed)
            exit_ = said_so(exit_, short)
        # A profiler takes time and memory of its own: nothing is learned from such a run.
        if not self.is_rank and not self.job.profile:
            self._learn(exit_, measured, demand, short)
        if self._runs_again(exit_, record):
            exit_ = self._back_to_the_line(exit_, measured, demand, record, short)
        else:
            self.end(exit_, measured)
        return exit_, measured

    def profile(self, followed: Followed) -> Profile | None:
        """What the profile of this attempt says, where its job asks for one."""
        if not self.job.profile:
            return None
        return conclude(self.site, self.run_id, self.number, followed.runtime_s)

    def _told(self, exit_: Exit) -> Exit:
        """*exit_*, unless the site's policy or a lost GPU ended the attempt."""
        gpus = [grant.uuid for grant in self._lease.gpus] if self._lease is not None else []
        if not gpus:
            return exit_
        warnings = self.site.ledger.warnings.of_run(self.run_id, self.number)
        return exit_told(exit_, warnings, lost_gpus(self.site), gpus)

    def _runs_again(self, exit_: Exit, record: RunRecord) -> bool:
        return runs_again(
            exit_,
            attempt=self.number,
            retries=self.job.retries,
            preemptions=record.preemptions,
        )

    def _back_to_the_line(
        self,
        exit_: Exit,
        measured: Measurement,
        demand: Demand,
        record: RunRecord,
        short: Shortage,
    ) -> Exit:
        """Try it again where a node could hold what it then asks for; gives the exit with that."""
        spaces = Forecaster(self.site).spaces(record.pool, record.queue)
        count = self.job.resources.nodes
        override = dict(self._override or {})
        if exit_.kind is ExitKind.OUT_OF_MEMORY:
            largest = largest_host_bytes(demand, spaces, count)
            more = after_out_of_memory(demand, measured.host_peak_bytes, largest)
            if more is None:
                return self._no_more(exit_, measured, "all the host memory that a node could give")
            override["host_memory_bytes"] = more
            all_of_it = ", all that a node could give" if more == largest else ""
            exit_ = _again(exit_, f" with {format_size(more)}{all_of_it}")
        elif exit_.kind is ExitKind.GPU_OUT_OF_MEMORY and short.above_bytes is None:
            exit_ = _again(exit_, " where there is room")
        elif exit_.kind is ExitKind.GPU_OUT_OF_MEMORY:
            largest = largest_gpu_bytes(demand, [each.node for each in spaces], count)
            held = [grant.memory_bytes for grant in self._lease.gpus] if self._lease else []
            above_bytes = max(short.above_bytes or 0, demand.gpu_memory_bytes, *held)
            on_gpu = after_gpu_out_of_memory(demand, above_bytes, largest)
            if on_gpu is None:
                said = f"the whole of the largest GPU there is, {format_size(largest)}"
                return self._no_more(exit_, measured, said)
            override |= on_gpu
            whole = "a whole GPU of at least " if on_gpu["whole_gpus"] else ""
            exit_ = _again(exit_, f" with {whole}{format_size(on_gpu['gpu_memory_bytes'])}")
        elif exit_.kind is ExitKind.INFRASTRUCTURE:
            exit_ = _again(exit_)
        self.site.ledger.runs.requeue(
            self.run_id, exit_, measured, demand_override=override or None
        )
        return exit_

    def _no_more(self, exit_: Exit, measured: Measurement, had: str) -> Exit:
        """The end: it had all there is."""
        exit_ = replace(exit_, message=f"{exit_.message}; it had {had}")
        self.end(exit_, measured)
        return exit_

    def fail(self, exit_: Exit) -> Exit:
        """The attempt broke before its container had ended: again, or the end."""
        if self._runs_again(exit_, self.site.ledger.runs.get(self.run_id)):
            exit_ = _again(exit_)
            self.site.ledger.runs.requeue(self.run_id, exit_)
        else:
            self.end(exit_)
        return exit_

    def end(self, exit_: Exit, measured: Measurement | None = None) -> None:
        """End the run in the ledger; the first end counts."""
        self.site.ledger.runs.finish(self.run_id, exit_, measured or Measurement())

    def give_back(self, wait: Wait) -> None:
        """Not now after all: back to the line as the same attempt, with the reason."""
        self.site.ledger.leases.give_back(self.run_id, self._token())
        self.site.ledger.runs.set_reason(
            self.run_id, wait.resource, wait.reason, expected_start_at=None
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Keep a step's start and end in the ledger."""
        runs = self.site.ledger.runs
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
        return self.site.ledger.runs.get(self.run_id).prediction or Prediction()

    def summary(self) -> str:
        """One line about a run that ended well."""
        record = self.site.ledger.runs.get(self.run_id)
        measured, said = record.measurement or Measurement(), self.prediction
        parts = [record.exit.message] if record.exit is not None else []
        if measured.runtime_s is not None:
            predicted = f" (predicted {format_duration(said.runtime_s)})" if said.runtime_s else ""
            parts.append(f"{format_duration(measured.runtime_s)}{predicted}")
        if measured.host_peak_bytes is not None:
            parts.append(f"host peak {format_size(measured.host_peak_bytes)}")
        if measured.gpu_peak_bytes is not None:
            parts.append(f"GPU peak {format_size(measured.gpu_peak_bytes)}")
        return ", ".join([*parts, f"outputs in {self.folder / 'outputs'}"])

    @property
    def ended(self) -> bool:
        """Nothing more will happen to this run."""
        return self.site.ledger.runs.get(self.run_id).state is RunState.ENDED

    def clean_up(self) -> None:
        """Remove container, lease, ports and the claim on the staged copy. Idempotent.

        The log, the outputs and, until the run has ended, the checkpoints stay.
        """
        if self._container_exists():
            self.site.runtime.stop(self.container, self.job.stop_grace)
            remove_container(self.site, self.container, self.run_id)
        forget_secrets(self.site.settings, self.container)
        self.site.cache.release(self.run_id)
        self.site.ledger.leases.release(self.run_id)
        if self.ended:
            shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)

    def _token(self) -> str:
        return self._lease.token if self._lease is not None else ""

    def _container_exists(self) -> bool:
        return self.site.runtime.inspect(self.container) is not None

    def _mounts(self) -> dict[str, BindMount]:
        mounts = {
            "HEADWAY_OUTPUTS": BindMount(self._folder("outputs"), OUTPUTS, read_only=False),
            "HEADWAY_CHECKPOINT": BindMount(
                self._folder("checkpoint"), CHECKPOINT, read_only=False
            ),
        }
        if self.dataset is not None:
            target = f"{DATA}/{self.dataset.path.name}"
            mounts["HEADWAY_DATA"] = BindMount(self.dataset.path, target)
        return mounts

    def _folder(self, name: str) -> Path:
        """A directory that is the program's user's alone."""
        have_passable(self.folder)
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        user = as_ids(self.site.container_user)
        if user is not None:
            os.chown(folder, *user)
        return folder

    def _spec(self, lease: Lease) -> ContainerSpec:
        mounts = self._mounts()
        runtime = self.site.runtime
        hidden = BindMount(self._secrets, secretfiles.TARGET)
        hidden_in = runtime.path_in_container(hidden)
        gang = self.meeting.environment(len(lease.gpus)) if self.meeting is not None else {}
        profiling = wrapping(self.site, self.job, self.number, mounts["HEADWAY_OUTPUTS"])
        env = {
            **gang,
            **self.job.env,
            **{f"{variable}_FILE": f"{hidden_in}/{variable}" for variable in self.job.secrets},
            **{key: runtime.path_in_container(mount) for key, mount in mounts.items()},
            "HEADWAY_RUN_ID": self.run_id,
            "HEADWAY_ATTEMPT": str(self.number),
        }
        return ContainerSpec(
            name=self.container,
            run_id=self.run_id,
            attempt=self.number,
            image=self.job.image,
            command=tuple(self.job.command),
            env=env,
            mounts=(
                *mounts.values(),
                *profiling.mounts,
                *((hidden,) if self.job.secrets else ()),
            ),
            wrapper=profiling.words,
            log_path=self._folder("log") / self._log.name,
            host_memory_bytes=lease.host_memory_bytes,
            cpus=lease.cpus,
            shm_bytes=self.job.resources.shm,
            gpu_uuids=tuple(grant.uuid for grant in lease.gpus),
            # The port where ranks meet is theirs: nobody else on the node may speak to it.
            ports=tuple(self.job.ports),
            network=self._network(),
            user=self.site.container_user,
            log_limit_bytes=self.site.settings.log_limit_bytes,
            disk_bytes=self.job.resources.disk or None,
        )

    def _learn(self, exit_: Exit, measured: Measurement, demand: Demand, short: Shortage) -> None:
        """Keep the trace of an attempt that teaches something: its time and peaks, or a bound.

        Nothing of a run on GPUs of several types, which is as slow as the
        slowest, nor of one that others kept from what it was granted.
        """
        lease = self._lease
        gpu_type = Forecaster(self.site).gpu_type(lease) if lease is not None else ""
        if not gpu_type:
            return
        if exit_.kind is ExitKind.OUT_OF_MEMORY:
            host_bytes = max(measured.host_peak_bytes or 0, demand.host_memory_bytes)
            measured = replace(measured, host_peak_bytes=host_bytes, gpu_peak_bytes=None)
        elif exit_.kind is ExitKind.GPU_OUT_OF_MEMORY and short.above_bytes:
            measured = replace(measured, host_peak_bytes=None, gpu_peak_bytes=short.above_bytes)
        elif exit_.kind is not ExitKind.OK:
            return
        self.site.ledger.traces.add([self._trace(exit_, measured, demand, gpu_type)])

    def _trace(self, exit_: Exit, measured: Measurement, demand: Demand, gpu_type: str) -> Trace:
        training = self.job.training
        latest = self.site.ledger.progress.latest(self.run_id)
        record = self.site.ledger.runs.get(self.run_id)
        busy = measured.gpu_utilisation_frac
        return Trace(
            network=training.network or self.job.recipe(),
            gpu_type=gpu_type,
            gpus=demand.gpus * self.job.resources.nodes,
            nodes=self.job.resources.nodes,
            batch_size=training.batch_size,
            runtime_s=measured.runtime_s if exit_.kind is ExitKind.OK else None,
            precision=training.precision,
            framework=training.framework,
            data_threads=training.data_threads,
            dataset_bytes=self.dataset.size_bytes if self.dataset else None,
            dataset_samples=training.samples,
            epochs=float(training.epochs) if training.epochs else None,
            iterations=latest.iteration if latest else None,
            host_peak_bytes=measured.host_peak_bytes,
            gpu_peak_bytes=measured.gpu_peak_bytes,
            cpus=demand.cpus,
            exit="ok" if exit_.kind is ExitKind.OK else "oom",
            started_at=record.started_at,
            recipe=self.job.recipe(),
            run_id=f"{self.run_id}-{self.number}",
            metrics={
                **settings_of(self.job.command),
                **({} if busy is None else {UTILISATION: busy}),
            },
        )


def container_name(run_id: str, attempt: int) -> str:
    """The one name of an attempt's container: one name, so one container, whatever dies."""
    return f"headway-{run_id}-{attempt}"


def forget_secrets(settings: Settings, container: str) -> None:
    """Strike the secrets of *container*, which is gone, out of its log, and remove them."""
    folder = settings.secrets_dir / container
    run_id, _, attempt = container.removeprefix("headway-").rpartition("-")
    log = settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"
    with suppress(OSError):  # what lies there is no log; the secrets go in any case
        FileRedactor(log, secretfiles.read(folder)).strike()
    secretfiles.remove(folder)


def _again(exit_: Exit, how: str = "") -> Exit:
    return replace(exit_, message=f"{exit_.message}; it is tried again{how}")


def exit_of(error: HeadwayError) -> Exit:
    """What an error means for the run: the user's to correct, or the site's to repeat."""
    if isinstance(error, StagingTimedOut):
        return Exit(ExitKind.TIMED_OUT, None, str(error))
    wrong = isinstance(error, ImageMissing | PolicyViolation | StagingError)
    if wrong and not isinstance(error, SourceUnreachable):
        return Exit(ExitKind.REFUSED, None, str(error))
    return Exit(ExitKind.INFRASTRUCTURE, None, str(error))
