"""Which runtime a node has: settled by its worker, for every process of the node."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.clock import Clock
from headway.durable import replace_file
from headway.model.container_policy import ContainerPolicy
from headway.runtime.errors import EngineSilent, EngineUnreachable
from headway.runtime.port import Runtime, RuntimeKind
from headway.runtime.process.programs import ProcessRuntime
from headway.settings import Settings

if TYPE_CHECKING:
    from headway.runtime.docker.containers import DockerRuntime


class ChosenRuntime:
    """The runtime of one node.

    If every process asked the engine for itself, one answer that does not come would let it look
    for the containers of a node in the wrong place, find none, and start a job twice.

    Args:
        settings: The node's.
        clock: The runtimes'.
        site_id: Labels the site's containers.
        closed: Asked for the services on other machines that containers may not reach now.
        let_go: See `RunGroups`.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        site_id: str,
        closed: Callable[[], Sequence[tuple[str, int]]],
        let_go: Callable[[Path], None],
    ) -> None:
        self._settings, self._clock = settings, clock
        self._site_id, self._closed, self._let_go = site_id, closed, let_go
        self._note = settings.state_dir / "runtime"

    @property
    def settled(self) -> RuntimeKind | None:
        """As it was set, or as the node's worker has settled it; None until one has."""
        if self._settings.runtime != "auto":
            return RuntimeKind(self._settings.runtime)
        return self._noted

    @property
    def _noted(self) -> RuntimeKind | None:
        try:
            return RuntimeKind(self._note.read_text())
        except (FileNotFoundError, ValueError):  # none, or one of which a part is missing
            return None

    def settle(self, kind: RuntimeKind) -> None:
        """Have every process of the node take *kind*, until its worker is started anew."""
        self._settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._note, kind.value)

    def found(self, policy: ContainerPolicy) -> RuntimeKind:
        """The engine where one answers, else processes.

        Raises:
            EngineSilent: None answers, and there is or has been one: a program
                that was to be confined must not run as a plain process
                because an engine is being started anew.
        """
        runtime, had = self._engine(policy), self._settings.state_dir / "engine"
        try:
            runtime.containers()
        except EngineUnreachable as error:
            engine = runtime.engine
            if had.exists() or self._noted is RuntimeKind.DOCKER or engine.expected():
                raise EngineSilent(error.action, error.cause, engine.address) from error
            return RuntimeKind.PROCESS
        had.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        had.touch()
        return RuntimeKind.DOCKER

    def made(
        self, kind: RuntimeKind, policy: ContainerPolicy, reserve_cpus: float = 0.0
    ) -> Runtime:
        """A runtime of *kind* under *policy*; *reserve_cpus* are held back from runs."""
        if kind is RuntimeKind.DOCKER:
            return self._engine(policy, reserve_cpus)
        home, let_go = self._settings.home, self._let_go
        return ProcessRuntime(home, policy, self._clock, reserve_cpus, let_go)

    def for_stopping(self, before: Runtime | None = None) -> Runtime | None:
        """One that lists and stops containers, made without asking ledger or engine.

        *before*, where it is still of the kind that is settled; None until one is.
        """
        kind = self.settled
        if kind is None or (before is not None and before.kind is kind):
            return before
        return self.made(kind, ContainerPolicy())  # which asks for nothing

    @property
    def why_no_engine(self) -> str:
        """Why programs are started as processes, where they are."""
        if self._settings.runtime != "auto":
            return "as HEADWAY_RUNTIME says"
        return self._engine(ContainerPolicy()).engine.why_none()

    def _engine(self, policy: ContainerPolicy, reserve_cpus: float = 0.0) -> "DockerRuntime":
        # 0.2 s of imports
        from headway.runtime.docker.containers import DockerRuntime  # noqa: PLC0415

        return DockerRuntime(
            site=self._site_id,
            policy=policy,
            clock=self._clock,
            docker_host=self._settings.docker_host,
            closed=self._closed,
            reserve_cpus=reserve_cpus,
            let_go=self._let_go,
        )
