"""This installation on this node: every adapter, built once from the settings."""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter

from headway.clock import Clock, SystemClock
from headway.errors import (
    EngineSilent,
    EngineUnreachable,
    HeadwayError,
    InvalidInput,
    NodeNameTaken,
    TelemetryError,
)
from headway.estimate.features import from_job
from headway.estimate.prior import demand_for, fair_host_bytes
from headway.estimate.recall import RECENT, of_any, said_of
from headway.estimate.usual import LOOKED_AT, Usual, instead_of_prior, kind_of
from headway.home import have_passable, keep_private, samples, strip_set_ids
from headway.ledger import Ledger
from headway.ledger.records import NodeRecord, RunRecord
from headway.model.job import TrainingJob
from headway.model.job_text import job_nodes
from headway.model.lease import Demand, Lease, Refuse
from headway.model.node import Capacity, Node, NodeReading, NodeSpace, is_of_type
from headway.model.policy import ContainerPolicy, GangNetwork, NetworkMode
from headway.model.run import Prediction
from headway.model.site import NodeSettings
from headway.policy.admission import over_quota, possible
from headway.policy.demand import raised, within
from headway.policy.headroom import empty_host_bytes
from headway.policy.network import network_of
from headway.policy.settings import PolicySettings
from headway.runtime.port import Runtime, RuntimeKind
from headway.runtime.process import ProcessRuntime
from headway.settings import Settings, read_settings
from headway.staging.cache import DataCache
from headway.staging.reader import UserReader
from headway.staging.rules import SourceRules
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.host import NodeHost, boot_id
from headway.telemetry.port import GpuSensors, HostSensors
from headway.telemetry.reading import node_reading, with_owners

if TYPE_CHECKING:
    from headway.estimate.estimator import Estimators
    from headway.runtime.docker import DockerRuntime

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

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        open_ledger: Callable[[str], Ledger] = Ledger.open,
    ) -> None:
        """A site with *settings*, on *clock*; *open_ledger* opens the address of its ledger."""
        self.settings = settings
        self.clock = clock
        self._open_ledger = open_ledger
        self._worker_token = uuid4().hex
        self._adopted: dict[str, dict[str, Any]] = {}

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, its tables brought up to this code.

        Raises:
            LedgerMissing: There is none; only `make_ledger` makes one.
        """
        return self._open_ledger(self.settings.database_url)

    def make_ledger(self) -> None:
        """Make the site's ledger where there is none yet."""
        have_passable(self.settings.home)
        Ledger.open(self.settings.database_url).close()

    @cached_property
    def runtime(self) -> Runtime:
        """The engine or the process runtime: as set, else as this node's worker chose it."""
        return self._engine() if self._kind() is RuntimeKind.DOCKER else self._processes()

    def _kind(self) -> RuntimeKind:
        if self.settings.runtime != "auto":
            return RuntimeKind(self.settings.runtime)
        return self._noted() or self._which_runtime()

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
        """That of a run which is under way here, else the engine where one answers.

        Raises:
            EngineSilent: None answers, and there is or has been one: a program
                that was to be confined must not run as a plain process
                because an engine is being started anew.
        """
        for run in self.ledger.runs.on_node(self.settings.node):
            if run.runtime is not None:
                return RuntimeKind(run.runtime)
        engine = self._engine()
        had = self.settings.state_dir / "engine"
        try:
            engine.containers()
        except EngineUnreachable as error:
            if had.exists() or self._noted() is RuntimeKind.DOCKER or engine.expected():
                raise EngineSilent(engine.address, error.cause) from error
            return RuntimeKind.PROCESS
        had.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        had.touch()
        return RuntimeKind.DOCKER

    @property
    def _runtime_note(self) -> Path:
        return self.settings.state_dir / "runtime"

    def _noted(self) -> RuntimeKind | None:
        return RuntimeKind(self._runtime_note.read_text()) if self._runtime_note.exists() else None

    def remove_container(self, name: str, run_id: str) -> None:
        """Remove a container of a run, and the power over others from what it wrote."""
        self.runtime.remove(name)
        stripped = strip_set_ids(self.settings.runs_dir / Path(run_id).name)
        if stripped:
            log.warning("run %s left %d set-uid or set-gid files: stripped", run_id, stripped)

    def _engine(self) -> "DockerRuntime":
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
        """``uid:gid`` that programs run and data is read as; empty for this process's owner."""
        if self.settings.container_user is not None:
            return self.settings.container_user
        return NOBODY if os.geteuid() == 0 else ""

    def _runtime_policy(self) -> ContainerPolicy:
        """The operator's policy; what headway itself keeps may always be mounted."""
        policy = self.container_policy
        kept = (self.settings.runs_dir, self.settings.cache_dir, self.settings.secrets_dir)
        own = (*kept, *self._nsys())
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
            reader=UserReader(as_ids(self.container_user), self._source_rules()),
        )

    def _source_rules(self) -> SourceRules:
        """What data sets may be read from: the operator's policy, and never what headway keeps."""
        home, policy = self.settings.home.resolve(), self.container_policy
        return SourceRules(
            roots=tuple(str(root.resolve()) for root in policy.mount_roots),
            closed=(str(home),),
            samples=str(samples(home).resolve()),
            hosts=policy.data_hosts,
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
                for team, limits in _LINE.validate_python(document).teams.items():
                    limits.check_quotas(team)
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
        """This node now, with what the containers of each run hold, as far as the engine tells."""
        reading = node_reading(self.gpus, self.host, self.clock)
        run_of_pid: dict[int, str] = {}
        held: dict[str, int] = {}
        try:
            running = [each for each in self.runtime.containers() if each.pids]
            for each in running:
                run_of_pid |= dict.fromkeys(each.pids, each.run_id)
                used_bytes = self.runtime.usage(each.name).host_used_bytes
                if used_bytes is not None:
                    held[each.run_id] = held.get(each.run_id, 0) + used_bytes
        except HeadwayError as error:
            log.debug("what runs hold of this node is not known: %s", error)
        return with_owners(reading, run_of_pid, held)

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
        never = self.never(demand, count, pool=record.pool, queue=record.queue)
        # A gang's parts are its leader's, which was asked.
        if never is not None or record.gang_id is not None:
            return never
        return self.over_quota(demand, count, record.team)

    def over_quota(self, demand: Demand, count: int, team: str) -> Refuse | None:
        """What of *demand* on *count* nodes *team* may never hold; None when it may."""
        return over_quota(demand, team, self.policy_settings.team(team), count=count)

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
        nodes = [record.node for record in self._where(pool, queue)]
        return possible(demand, nodes, count=count)

    def _where(self, pool: str, queue: str) -> list[NodeRecord]:
        """Nodes that a run may go to: those of the pool, or the one that its queue names."""
        records = [each for each in self.ledger.nodes.all() if pool in ("", each.node.pool)]
        return [each for each in records if each.node.name == queue] or records

    def spaces(self, pool: str = "", queue: str = "") -> list[NodeSpace]:
        """Nodes that a run may go to, with what each could give if it were empty.

        Args:
            pool: Its work pool; empty for any of the site.
            queue: Its work queue; one of a node's name binds it to that node.
        """
        return [
            NodeSpace(each.node, empty_host_bytes(each.node, each.reading))
            for each in self._where(pool, queue)
        ]

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
        self,
        job: TrainingJob,
        *,
        dataset_bytes: int | None,
        override: Mapping[str, Any] | None = None,
        pool: str = "",
        queue: str = "",
        gpu_type: str = "",
    ) -> tuple[Prediction, Demand]:
        """What is predicted for *job* where it may go, and what it therefore demands.

        Args:
            job: What was asked for.
            dataset_bytes: Real size of the staged data; None before staging.
            override: What a run is given after an attempt that had too little.
            pool: The work pool it goes to; empty for any of the site.
            queue: Its work queue; one of a node's name binds it to that node.
            gpu_type: Product name of the GPUs that it was granted; empty before, when the
                prediction is about the slowest of those that it may get. What it demands is the
                most that is known of any of them in either case.

        Returns:
            Both; on the CPU for a job that may run there where no node of the
            site could ever give it the GPUs it asks for.
        """
        spaces = self.spaces(pool, queue)
        said, demand = self._forecast(job, dataset_bytes, override, spaces, gpu_type)
        count, nodes = job.resources.nodes, [node for node, _ in spaces]
        if job.resources.cpu_fallback and possible(demand, nodes, count=count) is not None:
            on_cpu = self._forecast(job.without_gpus(), dataset_bytes, override, spaces, "")
            if possible(on_cpu[1], nodes, count=count) is None:
                return on_cpu
        return said, demand

    def _forecast(
        self,
        job: TrainingJob,
        dataset_bytes: int | None,
        override: Mapping[str, Any] | None,
        spaces: Sequence[NodeSpace],
        gpu_type: str,
    ) -> tuple[Prediction, Demand]:
        if dataset_bytes is None and job.dataset is not None:
            dataset_bytes = job.dataset.size
        every = {gpu.name for node, _ in spaces for gpu in node.capacity.gpus}
        types = sorted(name for name in every if is_of_type(job.resources.gpu_type, name))
        if not job.resources.gpus:
            types = ["cpu"]
        elif gpu_type or not types:
            types = sorted({*types, gpu_type})
        says = self._said_of_each(job, dataset_bytes, types)
        needs = of_any(list(says.values()))
        fair_bytes = fair_host_bytes(job, spaces)
        demand = raised(demand_for(job, needs, dataset_bytes, fair_bytes=fair_bytes), override)
        demand = within(demand, spaces, job.resources.nodes)
        prediction = says.get(gpu_type, needs)
        said = replace(
            prediction,
            host_peak_bytes=needs.host_peak_bytes or demand.host_memory_bytes,
            gpu_peak_bytes=needs.gpu_peak_bytes or demand.gpu_memory_bytes or None,
            cost=_cost(demand, prediction, [node for node, _ in spaces], job.resources.nodes),
        )
        return said, demand

    def _said_of_each(
        self, job: TrainingJob, dataset_bytes: int | None, types: Sequence[str]
    ) -> dict[str, Prediction]:
        """What is said of *job* on each of the GPU *types*, from one look at what is known."""
        nodes = job.resources.nodes
        asked = [
            from_job(job, gpu_type=name, nodes=nodes, dataset_bytes=dataset_bytes) for name in types
        ]
        learnt = [Prediction()] * len(asked)
        if any(self.settings.models_dir.glob("*.npz")):
            learnt = self.estimators.predict(asked)
        recent = self.ledger.traces.newest(job.recipe(), RECENT)
        says = {
            name: replace(said_of(each, known, recent, limit_s=job.max_runtime), gpu_type=name)
            for name, each, known in zip(types, asked, learnt, strict=True)
        }
        if all(said.learnt is not None for said in says.values()):
            return says
        others = Usual(self.ledger.runs.lasted(LOOKED_AT)).of(kind_of(job.document(), job.owner))
        return {
            name: said if said.learnt is not None else instead_of_prior(said, others)
            for name, said in says.items()
        }

    def gpu_type(self, lease: Lease) -> str:
        """Product name of the GPUs of *lease*; ``cpu`` without any, empty where they differ."""
        if not lease.gpus:
            return "cpu"
        record = self.ledger.nodes.get(lease.node)
        gpus = record.node.capacity.gpus if record is not None else ()
        held = {grant.uuid for grant in lease.gpus}
        names = {gpu.name for gpu in gpus if gpu.uuid in held}
        return names.pop() if len(names) == 1 else ""

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


def as_ids(user: str) -> tuple[int, int] | None:
    """Ids of *user*, as `Site.container_user` writes it; None where this process is it."""
    if not user or os.geteuid() != 0:
        return None
    uid, gid = (int(part) for part in user.split(":"))
    return uid, gid


def _cost(demand: Demand, said: Prediction, nodes: Sequence[Node], count: int) -> float | None:
    """Price of a run on *count* of *nodes* with the GPUs that *said* is about; the dearest."""
    if said.runtime_s is None:
        return None
    prices = [
        NodeSettings(
            price_per_hour=node.price_per_hour, gpu_price_per_hour=node.gpu_price_per_hour
        ).cost(
            said.runtime_s,
            gpus=demand.gpus,
            cpu_frac=min(demand.cpus / node.capacity.cpus, 1.0),
        )
        for node in nodes
        if not demand.gpus or any(gpu.name == said.gpu_type for gpu in node.capacity.gpus)
    ]
    return count * max(prices, default=0.0)


NOBODY = "65534:65534"

POLICY = "policy"
"""Name under which the ledger keeps the container policy."""

LINE = "line"
"""Name under which the ledger keeps the settings of the line."""

_LINE = TypeAdapter(PolicySettings)


@lru_cache(maxsize=1)
def current_site() -> Site:
    """The site of this process, from its environment.

    From here on what the process and its children make is their user's alone.
    """
    keep_private()
    return Site(read_settings(), SystemClock(), Ledger.find)
