"""One attempt of a run on this node: its five steps, each safe to repeat.

A flow process holds nothing that matters. Every step first looks at what is
there already, so that the process that takes over from a killed one goes on
where that one was: the staged copy is in the cache, the lease in the ledger,
the container at the engine, and the log on the disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from headway.errors import LeaseLost
from headway.model.container_policy import ContainerPolicy
from headway.model.lease import Lease, Wait
from headway.model.profile import Profile
from headway.model.run import Exit, ExitKind, Measurement, RunState, StepState
from headway.policy.gang_end import Rank
from headway.run import profiling
from headway.run.admit import confirm_lease
from headway.run.ahead import ahead_of
from headway.run.code import forget_working_copy
from headway.run.data import stage_data
from headway.run.environment import Environment, environment_of
from headway.run.environment_pruning import prune_environments
from headway.run.follow import Follower, Listener
from headway.run.followed import Followed
from headway.run.gang_folder import forget_gang_folder, tell
from headway.run.gpu_memory import limit_gpus
from headway.run.here import NodeAttempt, forget_checkpoint, forget_secrets
from headway.run.kept_files import keep_new_files
from headway.run.memory_growth import MemoryGrowth
from headway.run.rendezvous import Meeting, wait_for_head, wait_for_places, wait_for_ranks
from headway.run.settle import conclude_attempt, settle
from headway.run.spec import container_spec, keep_secrets, refuse_shell
from headway.run.upkeep import CHECKS, AttemptUpkeep, MakerUpkeep
from headway.runtime import secretfiles
from headway.runtime.errors import ContainerExists
from headway.runtime.port import ContainerSpec
from headway.runtime.rules import check_image, check_spec
from headway.staging.cache import StagedDataset
from headway.staging.reader import no_secret
from headway.this_node import remove_container

_MAKING = "make_environment"


class Attempt(NodeAttempt):
    """The current attempt of one run, on this node."""

    _log_from = 0
    """Where its program's part of the log begins, in bytes: what is before was told already."""

    def stage_data(
        self,
        progress: Callable[[int, int | None], None],
        secret: Callable[[str], object] = no_secret,
    ) -> Mapping[str, StagedDataset]:
        """Bring the job's data sets to this node's cache, one after the other; they, by name.

        Args:
            progress: Is told what is there, and of how much, in bytes.
            secret: Gives the value of a Secret block that the operator names for a storage.

        Raises:
            InvalidInput: The job names a secret that jobs may not use here.
        """
        self._refuse_secrets()
        return stage_data(self, self._policy(), progress, secret)

    def _time_left_s(self) -> float | None:
        """What is left of the time that the job gives itself; None without a limit.

        Staging counts, and making its environment.
        """
        if self.job.max_runtime is None:
            return None
        spent_s = sum(
            (step.ended_at - step.started_at).total_seconds()
            for step in self.site.ledger.steps.of_run(self.run_id)
            if step.attempt == self.number
            and step.name in ("stage_data", _MAKING)
            and step.ended_at is not None
        )
        return max(0.0, self.job.max_runtime - spent_s)

    def admit(self) -> Lease | Wait:
        """Confirm the lease now that the data's real size is known, or say what is missing.

        Raises:
            ImpossibleDemand: No node of the site could ever hold it.
        """
        return confirm_lease(self)

    def make_environment(self, lease: Lease, listener: Listener) -> Followed | None:
        """Have the environment that the job's requirements name, before anything of the job runs.

        Where it is not there yet the attempt's container makes it, and goes; the next one of the
        same name is the program's.

        Args:
            lease: What it may use.
            listener: Who is told.

        Returns:
            How the container ended that did not make it; None where the program may start.

        Raises:
            InvalidInput: The requirements ask for what no environment can have.
            LeaseLost: The lease is gone; the container was stopped.
            RuntimeFailure: The container could not be created or started.
        """
        if not self.job.requirements:
            return None
        if not self.container_exists():
            check_image(self.job.image, self._policy())
        wanted = environment_of(self)
        if wanted is None or (self.container_exists() and not wanted.is_being_made):
            return None
        with wanted.held(listener.lines):
            sealed = wanted.is_sealed()
            if not sealed:
                prune_environments(self.site, self.job.team)
                with self.step(_MAKING):
                    followed = self._made(wanted, lease, listener)
                if followed.cancellation or followed.own_exit().kind is not ExitKind.OK:
                    return followed
            remove_container(self.site, self.container, self.run_id)
            if not sealed:
                wanted.seal()
                self._log_from = self.log.stat().st_size
        return None

    def _made(self, wanted: Environment, lease: Lease, listener: Listener) -> Followed:
        """Start the container that makes it, or find it again, and follow it to its end."""
        self._start(lease, wanted.maker)
        return self._follow(lease, MakerUpkeep(self, lease, wanted.made), listener, ())

    def launch(self, lease: Lease, secrets: Callable[[], Mapping[str, str]]) -> None:
        """Start the container, unless it was started before.

        Args:
            lease: What it may use.
            secrets: Gives the values of the job's secrets, by variable; asked once, before
                the container is created.

        Raises:
            InvalidInput: A secret cannot be used, or the node can give no shell.
            LeaseLost: The lease is gone.
            RuntimeFailure: The container could not be created or started.
        """
        if not self.container_exists():
            refuse_shell(self)
            self._have_image()
            if self.job.secrets:
                self._refuse_secrets()
                keep_secrets(self, secrets())
        self._start(lease, partial(container_spec, self))

    def _start(self, lease: Lease, spec: Callable[[Lease], ContainerSpec]) -> None:
        """Start the container, made by *spec* where there is none."""
        runtime = self.site.runtime
        if not self.container_exists():
            wanted = spec(lease)
            check_spec(wanted, self._policy())
            with suppress(ContainerExists):  # another process of this very attempt was faster
                runtime.create(wanted)
        limit_gpus(self, lease)
        self._begin(lease)
        runtime.start(self.container)
        # Where the machine slept in between, the run may be elsewhere by now.
        self._begin(lease)

    def _have_image(self) -> None:
        check_image(self.job.image, self._policy())
        self.site.runtime.ensure_image(self.job.image)

    def start_together(
        self,
        lease: Lease,
        secrets: Callable[[], Mapping[str, str]],
        late: Callable[[Sequence[Rank]], None],
    ) -> Exit | None:
        """Let a part of a gang begin only when all of them can, rank 0 first.

        Nothing for a job on one node, and for a part whose container is there already.

        Args:
            lease: What it may use.
            secrets: See `launch`.
            late: Who is told of the parts that this one waits for.

        Returns:
            Why the gang does not start; None where this part is to train.

        Raises:
            InvalidInput: A secret cannot be used.
            LeaseLost: The lease is gone.
            RuntimeFailure: The image is not to be had, or rank 0 could not be started.
        """
        meeting = self.meet(lease)
        if meeting is None:
            return None
        if not self.container_exists():
            self._have_image()
            limit_gpus(self, lease)
            self.site.ledger.runs.ready(self.fence)
            found: Exit | Meeting | None
            if self.is_rank:
                found = wait_for_head(self.site, meeting, late)
            else:
                found = wait_for_ranks(self.site, meeting, late)
            if isinstance(found, Exit):
                return found
            self.meeting = found or meeting
        if self.is_rank and not self.job.launch.gathers:
            return None
        self.launch(lease, secrets)
        return self._tell_places(lease)

    def _tell_places(self, lease: Lease) -> Exit | None:
        """Say where this part is, and to its program, where that has to know, where all are.

        Only a container that runs has an address on a network of the engine.
        """
        place, runs = self.place(self.meeting_port(lease)), self.site.ledger.runs
        if not place or self.meeting is None:
            return None  # it has ended already, and the gang with it
        runs.placed(self.fence, place)
        if self.job.launch.gathers:
            places = wait_for_places(self.site, self.meeting)
            if isinstance(places, Exit):
                return places
            tell(self, places, self.meeting.rank)
        return None

    def _begin(self, lease: Lease) -> None:
        self.site.ledger.runs.begin(
            lease.fence,
            container=self.container,
            runtime=self.site.runtime.kind.value,
            ttl_s=self.site.settings.lease_ttl_s,
        )

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
        self.launch(lease, secrets)
        hidden = secretfiles.read(self.secrets)
        if self.job.secrets and not hidden:
            # Somebody removed them under the container: its log is still nobody's to see.
            hidden = tuple(value.encode() for value in secrets().values())
        return self._follow(lease, AttemptUpkeep(self, lease, hidden), listener, hidden)

    def _follow(
        self, lease: Lease, upkeep: AttemptUpkeep, listener: Listener, hidden: Iterable[bytes]
    ) -> Followed:
        site = self.site
        follower = Follower(
            runtime=site.runtime,
            clock=site.clock,
            name=self.container,
            listener=listener,
            upkeep=upkeep,
            gpus=site.gpus if lease.gpus else None,
            granted=frozenset(grant.uuid for grant in lease.gpus),
            prediction=self.prediction,
            ahead=ahead_of(self, len(lease.gpus) * self.job.nodes),
            is_resumed=lease.attempt > 1,
            progress_pattern=self.job.progress,
            max_runtime_s=self._time_left_s(),
            grace_s=self.job.stop_grace,
            check_every_s=self.forecaster.line.silent_after_s / CHECKS,
            secrets=hidden,
            log_from=self._log_from,
            writes_in=self.written_folders,
        )
        growth = MemoryGrowth(self, lease)
        try:
            with growth.going_on():
                followed = follower.follow()
        except LeaseLost:
            site.runtime.stop(self.container, self.job.stop_grace)
            raise
        return replace(
            followed,
            cancellation=upkeep.last_cancellation(followed.status) or followed.cancellation,
            disk_peak_bytes=upkeep.disk_peak_bytes,
            memory_limit_bytes=growth.limit_bytes,
            no_more_memory=growth.refused,
        )

    def _policy(self) -> ContainerPolicy:
        return self.site.policy_for(self.job.team, started=self.container_exists())

    def _refuse_secrets(self) -> None:
        """Raise `InvalidInput` for a secret that jobs may not use on this site."""
        if not self.job.secrets:
            return
        refused = self._policy().refused_secret(self.job.secrets, self.job.team)
        # What runs already goes on as it was started.
        if refused is not None and not self.container_exists():
            raise refused

    def settle(self, followed: Followed) -> tuple[Exit, Measurement]:
        """Classify the end, keep prediction beside measurement, learn from it.

        The ledger has the exit before the container is removed: whoever dies
        in between, nobody runs a finished job again. Before that its outputs are all there.
        """
        kept = keep_new_files(self.site, self.container)
        return settle(self, followed, kept.sentence())

    def profile(self, followed: Followed) -> Profile | None:
        """What the profile of this attempt says, where its job asks for one."""
        if not self.job.profile:
            return None
        return profiling.summarise(self.site, self.run_id, self.number, followed.runtime_s)

    def fail(self, exit_: Exit) -> Exit:
        """The attempt broke before its container had ended: again, or the end."""
        return conclude_attempt(self, exit_)

    def end(self, exit_: Exit, measured: Measurement | None = None) -> None:
        """End the run in the ledger; the first end counts."""
        self.site.ledger.runs.finish(self.fence, exit_, measured or Measurement())

    def give_back(self, wait: Wait) -> bool:
        """Not now after all: back to the queue as the same attempt, with the reason.

        False where that cannot be: its container was started, or it is a part of a gang.
        """
        return self.site.ledger.leases.give_back(self.fence, wait)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Keep a step's start and end in the ledger."""
        steps = self.site.ledger.steps
        steps.started(self.fence, name)
        try:
            yield
        except BaseException as error:
            steps.ended(self.fence, name, StepState.FAILED, str(error))
            raise
        steps.ended(self.fence, name, StepState.DONE)

    @property
    def ended(self) -> bool:
        """Nothing more will happen to this run."""
        return self.record.state is RunState.ENDED

    def clean_up(self) -> None:
        """Remove container, lease, ports and the claim on the staged copy. Idempotent.

        The log, the outputs and, unless the run has ended well, the checkpoints stay; so does
        what a newer attempt has here.
        """
        if self.container_exists():
            self.site.runtime.stop(self.container, self.job.stop_grace)
            remove_container(self.site, self.container, self.run_id)
        forget_secrets(self.site.settings, self.container)
        keep_new_files(self.site, self.container)
        forget_working_copy(self.site.settings, self.container)
        forget_gang_folder(self)
        if not self.is_rank and self.job.launch.starts_others:
            self.site.ledger.gang_asks.forget(self.run_id, self.number)
        if self.job.data:
            newer = self.site.ledger.leases.of_run(self.run_id)
            if newer is None or newer.node != self.site.settings.node or newer.fence == self.fence:
                self.site.cache.release(self.run_id)
        exit_ = self.record.exit
        if exit_ is not None and exit_.kind is ExitKind.OK:
            forget_checkpoint(self.site.settings, self.run_id)
        self.site.ledger.leases.release(self.fence)  # last: what is left has a lease
