"""This installation on this node: every adapter, built once from the settings."""

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter

from headway.clock import Clock, SystemClock
from headway.errors import EngineUnreachable, InvalidInput, NodeNameTaken, TelemetryError
from headway.estimate.features import from_job
from headway.estimate.prior import demand_for
from headway.estimate.recall import RECENT, said_of
from headway.ledger import Ledger
from headway.ledger.records import RunRecord
from headway.model.job import TrainingJob
from headway.model.job_text import job_nodes
from headway.model.lease import Demand, Refuse
from headway.model.node import Capacity, Node, NodeReading
from headway.model.policy import ContainerPolicy, GangNetwork, NetworkMode
from headway.model.run import Prediction
from headway.model.site import NodeSettings
from headway.policy.admission import possible
from headway.policy.demand import raised, within
from headway.policy.network import network_of
from headway.policy.settings import PolicySettings
from headway.runtime.port import Runtime, RuntimeKind
from headway.runtime.process import ProcessRuntime
from headway.settings import Settings, read_settings
from headway.staging.cache import DataCache
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.host import NodeHost, boot_id
from headway.telemetry.port import GpuSensors, HostSensors
from headway.telemetry.reading import node_reading

if TYPE_CHECKING:
    from headway.estimate.estimator import Estimators

log = logging.getLogger(__name__)

_SILENT_S = 30.0
"""A worker that lives reports every five seconds."""


class LeaseTerms(TypedDict):
    """What a lease is granted under, beside the demand."""

    ttl_s: float
    utilisation_limit: float
    predicted_high_s: float | None


class Site:
    """The adapters of this node. Each is built when it is first asked for.

    Importing scikit-learn or opening the engine's socket costs time that a
    command such as `headway runs` should not pay.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """A site with *settings*, on *clock*."""
        self.settings = settings
        self.clock = clock
        self._worker_token = uuid4().hex
        self._adopted: dict[str, dict[str, Any]] = {}

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, its tables brought up to this code."""
        self.settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Ledger.open(self.settings.database_url)

    @cached_property
    def runtime(self) -> Runtime:
        """The engine or the process runtime: as set, else as this node's worker chose it."""
        return self._engine() if self._kind() is RuntimeKind.DOCKER else self._processes()

    def _kind(self) -> RuntimeKind:
        if self.settings.runtime != "auto":
            return RuntimeKind(self.settings.runtime)
        note = self._runtime_note
        return RuntimeKind(note.read_text()) if note.exists() else self._which_runtime()

    def choose_runtime(self) -> None:
        """Settle which runtime this node has until its worker is started anew.

        If every process asked the engine for itself, one answer that does not
        come would let it look for the containers of a node in the wrong place,
        find none, and start a job twice.
        """
        if self.settings.runtime == "auto":
            self.settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside = self._runtime_note.with_suffix(".new")
            beside.write_text(self._which_runtime().value)
            beside.replace(self._runtime_note)

    def _which_runtime(self) -> RuntimeKind:
        """That of a run which is under way here, else the engine where one answers."""
        for run in self.ledger.runs.on_node(self.settings.node):
            if run.runtime is not None:
                return RuntimeKind(run.runtime)
        return RuntimeKind.DOCKER if _answers(self._engine()) else RuntimeKind.PROCESS

    @property
    def _runtime_note(self) -> Path:
        return self.settings.state_dir / "runtime"

    def _engine(self) -> Runtime:
        from headway.runtime.docker import DockerRuntime  # noqa: PLC0415 - 0.2 s of imports

        return DockerRuntime(
            site=self.site_id,
            policy=self._runtime_policy(),
            clock=self.clock,
            docker_host=self.settings.docker_host,
            closed=self.settings.services,
        )

    def _processes(self) -> Runtime:
        return ProcessRuntime(self.settings.home, self._runtime_policy(), self.clock)

    @cached_property
    def container_user(self) -> str:
        """``uid:gid`` that programs run as; empty for the owner of this process."""
        if self.settings.container_user is not None:
            return self.settings.container_user
        if self.runtime.kind is RuntimeKind.DOCKER and os.getuid() == 0:
            return NOBODY
        return ""

    def _runtime_policy(self) -> ContainerPolicy:
        """The operator's policy; what headway itself keeps may always be mounted."""
        policy = self.container_policy
        own = (self.settings.runs_dir, self.settings.cache_dir, *self._nsys())
        return policy.model_copy(update={"mount_roots": (*policy.mount_roots, *own)})

    def _nsys(self) -> tuple[Path, ...]:
        return (self.settings.nsys,) if self.settings.nsys is not None else ()

    @cached_property
    def gpus(self) -> GpuSensors:
        """The GPUs of this node, through NVML."""
        return NvmlGpus(self.settings.nvml_library)

    @cached_property
    def host(self) -> HostSensors:
        """The host of this node."""
        return NodeHost(self.settings.home)

    @cached_property
    def cache(self) -> DataCache:
        """Staged data sets on this node."""
        return DataCache(
            self.settings.cache_dir,
            budget_bytes=self.node_settings.cache_budget,
            index=self.ledger.staged,
            node=self.settings.node,
        )

    @cached_property
    def estimators(self) -> "Estimators":
        """The champion; without one it knows nothing, and the prior decides."""
        from headway.estimate import store  # noqa: PLC0415 - numpy and scipy take half a second

        return store.load(self.settings.models_dir)

    @property
    def site_id(self) -> str:
        """Labels what belongs to this site on a shared engine."""
        return hashlib.sha256(str(self.settings.home.resolve()).encode()).hexdigest()[:12]

    @property
    def node_settings(self) -> NodeSettings:
        """What the operator set for this node in its block."""
        document = self.ledger.settings.get(f"node/{self.settings.node}")
        return NodeSettings.model_validate(document or {})

    @property
    def container_policy(self) -> ContainerPolicy:
        """What the operator set for containers in the policy block."""
        return ContainerPolicy.model_validate(self.ledger.settings.get(POLICY) or {})

    @property
    def policy_settings(self) -> PolicySettings:
        """What the operator set for the line in its block."""
        return _LINE.validate_python(self.ledger.settings.get(LINE) or {})

    def adopt(self, name: str, document: dict[str, Any]) -> bool:
        """Keep what an operator set under *name*, and let it take effect; whether it is new.

        Raises:
            ValueError: The document is not valid; what held before goes on to hold.
        """
        if name == LINE:
            document = {key: value for key, value in document.items() if value is not None}
            try:
                _LINE.validate_python(document)
            except InvalidInput as error:
                raise ValueError(str(error)) from error
        else:
            kind: type[BaseModel] = ContainerPolicy if name == POLICY else NodeSettings
            wanted = kind.model_validate(document)
            if isinstance(wanted, ContainerPolicy):
                refused = network_of(wanted, 1, self.settings.api_access)
                if isinstance(refused, Refuse):
                    raise ValueError(refused.allowed)
        before = self._adopted.get(name, document)
        self._adopted[name] = document
        # Another node's worker may have been the first to write it down.
        if not self.ledger.settings.put(name, document) and before == document:
            return False
        # Built anew from the new settings when they are next asked for.
        for built in ("runtime", "cache"):
            self.__dict__.pop(built, None)
        self.join()
        return True

    def take_name(self) -> None:
        """Make sure that no other machine works under this node's name.

        A machine that was started anew is another boot under the same name:
        it waits until the worker of before has been silent for a while.

        Raises:
            NodeNameTaken: A worker on another machine goes on reporting.
        """
        known = self.ledger.nodes.get(self.settings.node)
        if known is None or known.boot_id == boot_id():
            return
        while (self.ledger.now() - known.heartbeat_at).total_seconds() < _SILENT_S:
            self.clock.sleep(1.0)
            newest = self.ledger.nodes.get(self.settings.node)
            if newest is not None and newest.heartbeat_at != known.heartbeat_at:
                raise NodeNameTaken(self.settings.node)

    def join(self) -> None:
        """Put this node into the ledger with what it has; takes over from a worker before."""
        settings = self.node_settings
        known = self.ledger.nodes.get(self.settings.node)
        before = known.node.capacity.gpus if known is not None else ()
        if known is not None and known.boot_id == boot_id():
            # Nothing is taken out of a machine that runs: what is not there is lost.
            self.gpus.expect(before)
        try:
            gpus = tuple(settings.with_reserve(gpu) for gpu in self.gpus.gpus())
        except TelemetryError as error:
            log.warning("%s", error)
            gpus = before
        for gone in {gpu.uuid for gpu in before} - {gpu.uuid for gpu in gpus}:
            log.warning("GPU %s was there before the machine was started anew; it is gone", gone)
        capacity = Capacity(self.host.cpus(), self.host.read().memory_bytes, gpus)
        node = Node(
            name=self.settings.node,
            pool=self.settings.pool,
            capacity=capacity,
            reserve=settings.reserve(capacity),
            price_per_hour=settings.price_per_hour,
            gpu_price_per_hour=settings.gpu_price_per_hour,
        )
        self.ledger.nodes.register(node, boot_id=boot_id(), worker_token=self._worker_token)

    def heartbeat(self) -> bool:
        """Keep the node's newest reading; False when another worker has the node now."""
        self.runtime.trim_logs()
        return self.ledger.nodes.heartbeat(self.settings.node, self._worker_token, self.read_node())

    def read_node(self) -> NodeReading:
        """This node now."""
        return node_reading(self.gpus, self.host, self.clock)

    def lost_gpus(self) -> Mapping[str, str]:
        """GPUs of this node that fell off the bus, by uuid, with the cause; read now.

        By the worker's last reading where they cannot be read.
        """
        record = self.ledger.nodes.get(self.settings.node)
        if record is not None:
            self.gpus.expect(record.node.capacity.gpus)
        try:
            self.gpus.read()
        except TelemetryError:
            return record.reading.lost_gpus if record is not None and record.reading else {}
        return self.gpus.lost()

    def nodes(self) -> list[Node]:
        """Every node of the site."""
        return [record.node for record in self.ledger.nodes.all()]

    def refusal(self, record: RunRecord, demand: Demand) -> Refuse | None:
        """What of a run's demand the nodes it may run on could never hold; None if they could."""
        count = 1 if record.gang_id is not None else job_nodes(record.job)
        return self.never(demand, count, pool=record.pool, queue=record.queue)

    def never(
        self, demand: Demand, count: int, *, pool: str = "", queue: str = ""
    ) -> Refuse | None:
        """What of *demand* no *count* nodes could ever hold or join; None when they could.

        Args:
            demand: On each node.
            count: Nodes it needs.
            pool: The work pool it goes to; empty for any of the site.
            queue: Its work queue; one of a node's name binds it to that node.
        """
        network = self.network(count) if count > 1 else None
        if isinstance(network, Refuse):
            return network
        nodes = [node for node in self.nodes() if pool in ("", node.pool)]
        bound = [node for node in nodes if node.name == queue]
        return possible(demand, bound or nodes, count=count)

    def network(self, nodes: int) -> NetworkMode | GangNetwork | Refuse | None:
        """What the containers of a job over *nodes* nodes join; `Refuse` where it has none.

        None without an engine: there are no networks, programs have the machine's.
        """
        if self.runtime.kind is RuntimeKind.PROCESS:
            return None
        return network_of(self.container_policy, nodes, self.settings.api_access)

    def here(self) -> Node | None:
        """This node as the ledger has it."""
        record = self.ledger.nodes.get(self.settings.node)
        return record.node if record is not None else None

    def forecast(
        self, job: TrainingJob, *, dataset_bytes: int | None, host_memory_bytes: int | None
    ) -> tuple[Prediction, Demand]:
        """What is predicted for *job* on this node, and what it therefore demands.

        Args:
            job: What was asked for.
            dataset_bytes: Real size of the staged data; None before staging.
            host_memory_bytes: Overrides the demand after a kill for memory.

        Returns:
            Both; on the CPU for a job that may run there where no node of the
            site could ever give it the GPUs it asks for.
        """
        said, demand = self._forecast(job, dataset_bytes, host_memory_bytes)
        if job.resources.cpu_fallback and self.never(demand, job.resources.nodes) is not None:
            on_cpu = self._forecast(job.without_gpus(), dataset_bytes, host_memory_bytes)
            if self.never(on_cpu[1], job.resources.nodes) is None:
                return on_cpu
        return said, demand

    def _forecast(
        self, job: TrainingJob, dataset_bytes: int | None, host_memory_bytes: int | None
    ) -> tuple[Prediction, Demand]:
        here = self.here()
        if dataset_bytes is None and job.dataset is not None:
            dataset_bytes = job.dataset.size
        configuration = from_job(
            job,
            gpu_type=self.gpu_type(),
            nodes=job.resources.nodes,
            dataset_bytes=dataset_bytes,
        )
        learnt = Prediction()
        if any(self.settings.models_dir.glob("*.npz")):
            learnt = self.estimators.predict(configuration)
        recent = self.ledger.traces.newest(job.recipe(), RECENT)
        prediction = said_of(configuration, learnt, recent, limit_s=job.max_runtime)
        demand = raised(demand_for(job, prediction, dataset_bytes), host_memory_bytes)
        if here is not None:
            demand = within(demand, here)
        said = replace(
            prediction,
            host_peak_bytes=prediction.host_peak_bytes or demand.host_memory_bytes,
            gpu_peak_bytes=prediction.gpu_peak_bytes or demand.gpu_memory_bytes or None,
        )
        if prediction.runtime_s is not None:
            price = self.cost(demand, prediction.runtime_s, nodes=job.resources.nodes)
            said = replace(said, cost=price)
        return said, demand

    def gpu_type(self) -> str:
        """Product name of this node's GPUs; ``cpu`` without any."""
        here = self.here()
        return here.capacity.gpus[0].name if here is not None and here.capacity.gpus else "cpu"

    def cost(self, demand: Demand, runtime_s: float, *, nodes: int) -> float:
        """Price of *runtime_s* with what *demand* holds of *nodes* such as this one."""
        here = self.here()
        cpus = here.capacity.cpus if here is not None else demand.cpus
        return nodes * self.node_settings.cost(
            runtime_s, gpus=demand.gpus, cpu_frac=min(demand.cpus / cpus, 1.0)
        )

    def lease_terms(self, prediction: Prediction) -> LeaseTerms:
        """What a lease is granted under, given what is predicted."""
        return LeaseTerms(
            ttl_s=self.settings.lease_ttl_s,
            utilisation_limit=self.policy_settings.utilisation_limit,
            predicted_high_s=prediction.runtime_high_s,
        )


def _answers(engine: Runtime) -> bool:
    try:
        engine.containers()
    except EngineUnreachable:
        return False
    return True


NOBODY = "65534:65534"

POLICY = "policy"
"""Name under which the ledger keeps the container policy."""

LINE = "line"
"""Name under which the ledger keeps the settings of the line."""

_LINE = TypeAdapter(PolicySettings)


@lru_cache(maxsize=1)
def current_site() -> Site:
    """The site of this process, from its environment."""
    return Site(read_settings(), SystemClock())
