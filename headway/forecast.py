"""What a job will need, take and cost, and where: by what the site knows at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from headway.engine.ask import Terms, ask
from headway.engine.kinds import takes
from headway.engine.login import login_of
from headway.estimate.features import Configuration, from_job
from headway.estimate.framework_memory import host_guess
from headway.estimate.gpu_prior import gpu_memory_guess
from headway.estimate.physics import Tables
from headway.estimate.prior import demand_for
from headway.estimate.recall import RECENT, of_any, said_of
from headway.estimate.usual import LOOKED_AT, Found, Usual, instead_of_prior, kind_of
from headway.ledger.engines import EnginePoolRecord
from headway.ledger.records import NodeRecord
from headway.model.container_policy import GangNetwork, NetworkMode
from headway.model.job import TrainingJob
from headway.model.lease import ANY_PORT, Demand, Lease, Refuse
from headway.model.node import Capacity, Gpu, Node, NodeSpace, PortUse, is_of_type
from headway.model.node_settings import price_on
from headway.model.run import Prediction, Sized
from headway.model.trace import Trace
from headway.policy.admission import over_quota, possible
from headway.policy.base_image import Based, on_base_image
from headway.policy.demand import raised, within
from headway.policy.headroom import empty_host_bytes
from headway.policy.narrowing import refused_port
from headway.policy.network import network_of
from headway.policy.settings import PolicySettings
from headway.runtime.port import RuntimeKind
from headway.site import Site

if TYPE_CHECKING:
    from headway.estimate.estimator import Estimators


class LeaseTerms(TypedDict):
    """What a lease is granted under, beside the demand."""

    ttl_s: float
    utilisation_limit: float
    predicted_high_s: float | None


class Forecaster:
    """Forecasts of one moment: nodes and ended runs are read once, when they are first needed."""

    def __init__(self, site: Site) -> None:
        """For jobs of *site*."""
        self._site = site
        self._usual: dict[str | None, Usual] = {}
        self._recent: dict[tuple[str, str | None], list[Trace]] = {}
        self._known: dict[str, NodeRecord | None] = {}

    @cached_property
    def nodes(self) -> list[NodeRecord]:
        """Every node of the site."""
        return self._site.ledger.nodes.all()

    @cached_property
    def engine_pools(self) -> dict[str, EnginePoolRecord]:
        """Work pools whose runs an engine starts."""
        return self._site.ledger.engines.pools()

    @cached_property
    def line(self) -> PolicySettings:
        """What the operator set for the queue."""
        return self._site.policy_settings

    @property
    def _shares(self) -> bool:
        return self.line.share_past_runs

    @cached_property
    def _estimators(self) -> "Estimators":
        return self._site.estimators

    @cached_property
    def _tables(self) -> Tables:
        return self._site.tables

    # -- where --------------------------------------------------------------------------

    def spaces(self, pool: str = "", queue: str = "") -> list[NodeSpace]:
        """Nodes that a run may go to, with what each could give if it were empty.

        Args:
            pool: Its work pool; empty for any of the site.
            queue: Its work queue; one of a node's name binds it to that node.
        """
        able = self._able(pool, queue)
        return [NodeSpace(each.node, empty_host_bytes(each.node, each.reading)) for each in able]

    def on_base_image(self, job: TrainingJob, team: str, pool: str = "", queue: str = "") -> Based:
        """*job* of *team* in an image of its Python, if these nodes have any."""
        if not job.python or pool in self.engine_pools:
            return Based(job)  # a policy that cannot be trusted is asked only where it decides
        readings = [each.reading for each in self._able(pool, queue)]
        there = [None if each is None else each.pythons for each in readings]
        return on_base_image(job, self._site.policy_for(team), there)

    def _able(self, pool: str, queue: str) -> list[NodeRecord]:
        records = [each for each in self.nodes if pool in ("", each.node.pool)]
        for each in self.engine_pools.values():
            records += as_nodes(each) if pool in ("", each.pool) else ()
        return [each for each in records if each.node.name == queue] or records

    def network(self, nodes: int, team: str) -> NetworkMode | GangNetwork | Refuse | None:
        """What containers of a job of *team* over *nodes* nodes join; `Refuse` where it has none.

        None without an engine: there are no networks, programs have the machine's.
        """
        if self._site.runtime.kind is RuntimeKind.PROCESS:
            return None
        return network_of(self._site.policy_for(team), nodes, self._site.settings.api_access)

    def refusal(
        self,
        demand: Demand,
        count: int,
        team: str,
        *,
        user: str = "",
        pool: str = "",
        queue: str = "",
        job: TrainingJob | None = None,
    ) -> Refuse | None:
        """What of *demand* no *count* nodes could ever hold or join, or *team* may never have.

        Of a pool of an engine: what of *job* that has no counterpart for. Who may have how much is
        the engine's to say.

        Args:
            demand: On each node.
            count: Nodes it needs.
            team: Whose quota counts; empty for a part of a gang, whose leader was asked.
            user: Whose quota in it counts; empty where nobody has said.
            pool: The work pool it goes to; empty for any of the site.
            queue: Its work queue; one of a node's name binds it to that node.
            job: What was asked for; None where it was judged before.
        """
        if pool in self.engine_pools:
            return None if job is None else self._refused_by_engine(job, demand, pool)
        network = self.network(count, team) if count > 1 else None
        if isinstance(network, Refuse):
            return network
        never = possible(demand, [node for node, _ in self.spaces(pool, queue)], count=count)
        if never is not None or not team:
            return never
        # A run that came by Prefect's own API has passed no gateway.
        uses = {node.ports.use for node, _ in self.spaces(pool, queue)}
        may_bind = count > 1 or PortUse.BOUND in uses
        named = [port for port in demand.ports if port != ANY_PORT] if may_bind else []
        if (port := refused_port(named, team, self._site.port_ranges)) is not None:
            return Refuse("ports", *port)
        if demand.ports and self._site.policy_for(team).network is NetworkMode.NONE:
            return Refuse("ports", named, f"none: containers of team {team} have no network")
        limits = self.line.team(team)
        return over_quota(demand, team, limits, count=count, user=user)

    def _refused_by_engine(self, job: TrainingJob, demand: Demand, pool: str) -> Refuse | None:
        """Why the engine of *pool* cannot have *job*; None where it can."""
        there = self.engine_pools[pool]
        terms = Terms()
        if there.node == self._site.settings.node:  # else its submit host knows the accounts
            terms = Terms(login=login_of(self.line, there.engine, job.team, job.owner))
        found = ask(
            "asked", job=job, demand=demand, said=Prediction(), pool=there.has,
            takes=takes(there.engine), terms=terms,
        )  # fmt: skip
        return found if isinstance(found, Refuse) else None

    # -- what it needs and takes --------------------------------------------------------

    def forecast(
        self,
        job: TrainingJob,
        *,
        dataset_bytes: int | None = None,
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
            site could ever give it the GPUs it asks for. Of a job that leaves its size open
            those of its smallest size, with all in `Prediction.sizes`.
        """
        spaces = self.spaces(pool, queue)
        if job.is_elastic:
            return self._of_sizes(job, dataset_bytes, override, spaces)
        said, demand = self._forecast(job, dataset_bytes, override, spaces, gpu_type)
        count, nodes = job.nodes, [node for node, _ in spaces]
        if job.resources.cpu_fallback and possible(demand, nodes, count=count) is not None:
            on_cpu = self._forecast(job.without_gpus(), dataset_bytes, override, spaces, "")
            if possible(on_cpu[1], nodes, count=count) is None:
                return on_cpu
        return said, demand

    def _of_sizes(
        self,
        job: TrainingJob,
        dataset_bytes: int | None,
        override: Mapping[str, Any] | None,
        spaces: Sequence[NodeSpace],
    ) -> tuple[Prediction, Demand]:
        """The same of the smallest size that a node of the site could hold, with those of all."""
        most = max((len(node.capacity.gpus) for node, _ in spaces), default=0)
        sizes = [each for each in job.sizes if each.gpus <= most and each.nodes <= len(spaces)]
        found = []
        for size in sizes or job.sizes[:1]:  # a wide range has many that no node could hold
            fixed = job.of_size(size)
            said, demand = self._forecast(fixed, dataset_bytes, override, spaces, "")
            found.append(Sized(replace(demand, nodes=size.nodes), said))
        nodes = [node for node, _ in spaces]
        able = [each for each in found if self._could(each.demand, job.team, nodes)]
        least = (able or found)[0]  # where no node could hold it, that is said of it
        # Of a larger size has to be known what it brings.
        known = [each for each in able[1:] if each.said.learnt is not None and least.said.learnt]
        return Prediction(sizes=(least, *known)).of_size(least), least.demand

    def _could(self, demand: Demand, team: str, nodes: Sequence[Node]) -> bool:
        """Whether *nodes* could ever hold *demand*, where its parts have a network to meet on."""
        count = demand.nodes
        if count > 1 and isinstance(self.network(count, team), Refuse):
            return False
        return possible(demand, nodes, count=count) is None

    def _forecast(
        self,
        job: TrainingJob,
        dataset_bytes: int | None,
        override: Mapping[str, Any] | None,
        spaces: Sequence[NodeSpace],
        gpu_type: str,
    ) -> tuple[Prediction, Demand]:
        if dataset_bytes is None:
            dataset_bytes = job.declared_data_bytes
        every = {gpu.name for node, _ in spaces for gpu in node.capacity.gpus}
        types = sorted(name for name in every if is_of_type(job.resources.gpu_type, name))
        if not job.gpus:
            types = ["cpu"]
        elif gpu_type or not types:
            types = sorted({*types, gpu_type})
        says = self._predictions(job, dataset_bytes, types)
        needs = of_any(list(says.values()))
        guess = None
        if job.gpus and needs.gpu_peak_bytes is None:
            guess = gpu_memory_guess(from_job(job, gpu_type=types[0]), self._tables)
        demand = demand_for(
            job,
            needs,
            dataset_bytes,
            host_guess=host_guess(job, job.gpus, spaces),
            gpu_guess_bytes=guess and guess.upper_bytes,
        )
        demand = within(raised(demand, override), spaces, job.nodes)
        prediction = says.get(gpu_type, needs)
        said = replace(
            prediction,
            host_peak_bytes=needs.host_peak_bytes or demand.host_memory_bytes,
            gpu_peak_bytes=needs.gpu_peak_bytes or demand.gpu_memory_bytes or None,
            cost=_dearest(demand, prediction, [node for node, _ in spaces], job.nodes),
        )
        return said, demand

    def _predictions(
        self, job: TrainingJob, dataset_bytes: int | None, types: Sequence[str]
    ) -> dict[str, Prediction]:
        """What is predicted of *job* on each of the GPU *types*."""
        site, nodes = self._site, job.nodes
        asked = [
            from_job(job, gpu_type=name, nodes=nodes, dataset_bytes=dataset_bytes) for name in types
        ]
        learnt = [Prediction()] * len(asked)
        if any(site.settings.models_dir.glob("estimators-*.json")):
            learnt = self._estimators.predict(asked)
        recent = self.recent(job)
        limit_s, is_session = job.max_runtime, job.session is not None

        def said(asked: Configuration, known: Prediction) -> Prediction:
            return said_of(asked, known, recent, limit_s=limit_s, is_session=is_session)

        says = {
            name: replace(said(each, known), gpu_type=name)
            for name, each, known in zip(types, asked, learnt, strict=True)
        }
        if all(said.learnt is not None for said in says.values()):
            return says
        others = self.usual(job)
        return {
            name: said if said.learnt is not None else instead_of_prior(said, others)
            for name, said in says.items()
        }

    def recent(self, job: TrainingJob) -> list[Trace]:
        """The newest runs of the recipe of *job* of which its team may know."""
        asked = (job.recipe(), None if self._shares else job.team)
        if asked not in self._recent:  # of each size of an elastic job the same
            recipe, team = asked
            self._recent[asked] = self._site.ledger.traces.newest(recipe, RECENT, team)
        return self._recent[asked]

    def usual(self, job: TrainingJob) -> Found | None:
        """How long runs of its team last that are of the kind of *job*; None where none is."""
        team = None if self._shares else job.team
        if team not in self._usual:  # by team, so that one that runs many hides nobody's
            seen = self._site.ledger.runs.lasted(LOOKED_AT, team)
            self._usual[team] = Usual(seen, shared=self._shares)
        return self._usual[team].of(kind_of(job.document(), job.owner, job.team))

    # -- what it was granted ------------------------------------------------------------

    def lease_terms(self, predicted_high_s: float | None) -> LeaseTerms:
        """Of a run whose runtime's upper quantile is *predicted_high_s*; None if unknown."""
        return LeaseTerms(
            ttl_s=self._site.settings.lease_ttl_s,
            utilisation_limit=self.line.utilisation_limit,
            predicted_high_s=predicted_high_s,
        )

    def gpu_type(self, lease: Lease) -> str:
        """Product name of the GPUs of *lease*; ``cpu`` without any, empty where they differ."""
        if not lease.gpus:
            return "cpu"
        known, held = self._node(lease.node), {grant.uuid for grant in lease.gpus}
        gpus = known.node.capacity.gpus if known is not None else ()
        names = {gpu.name for gpu in gpus if gpu.uuid in held}
        return names.pop() if len(names) == 1 else ""

    def cost(self, demand: Demand, runtime_s: float, *, nodes: int) -> float | None:
        """Price of *runtime_s* with what *demand* holds of *nodes* such as this one."""
        here = self._node(self._site.settings.node)
        if here is None:
            return None
        return nodes * price_on(here.node, runtime_s, gpus=demand.gpus, cpus=demand.cpus)

    def _node(self, name: str) -> NodeRecord | None:
        """Its row alone: those of a large site, with what each read last, take long to read."""
        if name not in self._known:
            self._known[name] = self._site.ledger.nodes.get(name)
        return self._known[name]


_UNKNOWN_BYTES = 1 << 50
"""Memory of a GPU of which a cluster tells the type alone: the job is refused for none."""


def as_nodes(pool: EnginePoolRecord) -> list[NodeRecord]:
    """The machines of an engine's pool as nodes, so that the same is said of what they could hold.

    Nothing is ever granted there.
    """
    found = []
    for each in pool.has.nodes:
        types = [kind.type or "GPU" for kind in each.gpus for _ in range(kind.count)]
        gpus = tuple(
            Gpu(f"{each.name}/{at}", at, name, _UNKNOWN_BYTES) for at, name in enumerate(types)
        )
        has = Capacity(each.cpus, each.host_memory_bytes, gpus)
        node = Node(each.name, pool.pool, has)
        found.append(NodeRecord(node, "", "", pool.read_at, None))
    return found


def _dearest(demand: Demand, said: Prediction, nodes: Sequence[Node], count: int) -> float | None:
    """Price of a run on *count* of *nodes* with the GPUs that *said* is about; the dearest."""
    if said.runtime_s is None:
        return None
    prices = [
        price_on(node, said.runtime_s, gpus=demand.gpus, cpus=demand.cpus)
        for node in nodes
        if not demand.gpus or any(gpu.name == said.gpu_type for gpu in node.capacity.gpus)
    ]
    return count * max(prices, default=0.0)
