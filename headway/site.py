"""This installation on this node: every adapter, built once from the settings."""

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import TypeAdapter

from headway.clock import Clock, SystemClock
from headway.errors import InvalidInput, LedgerError
from headway.estimate.physics import Tables, shipped, with_site
from headway.home import have_passable, keep_private, samples
from headway.ledger import Ledger
from headway.ledger.database import Connections
from headway.model.address import local_path
from headway.model.ceiling import Ceiling
from headway.model.container_policy import UIDS_OF_TEAMS, ContainerPolicy
from headway.model.node_settings import NodeSettings
from headway.model.number_range import NumberRange
from headway.policy.narrowing import check, for_team, uid_refusal
from headway.policy.settings import LINE, PolicySettings
from headway.runtime.ceiling_file import read_ceiling
from headway.runtime.chosen import ChosenRuntime
from headway.runtime.errors import CeilingUnsafe
from headway.runtime.port import Runtime, RuntimeKind
from headway.runtime.rules import with_real_roots
from headway.settings import Settings, read_settings, service_of
from headway.staging.cache import DataCache
from headway.staging.reader import Credentials, Reader, UserReader, no_secret
from headway.staging.rules import SourceRules
from headway.staging.upload_chunks import UploadChunks
from headway.telemetry.errors import TelemetryError
from headway.telemetry.gpu import NvmlGpus
from headway.telemetry.host import NodeHost
from headway.telemetry.port import GpuSensors, HostSensors

if TYPE_CHECKING:
    from headway.estimate.estimator import Estimators

log = logging.getLogger(__name__)

_SHARE_OF_A_TEAM = 0.75
"""Of a node's cache, where the site has several: what runs use of it goes for nobody else."""


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
        self.worker_token = uuid4().hex
        """Of this process, while it is the node's worker."""
        self.adopted: dict[str, dict[str, Any]] = {}
        """By name, the settings that this process has adopted."""
        self._estimators: tuple[Path | None, Estimators] | None = None

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger.

        Raises:
            LedgerMissing: There is none; only `make_ledger` makes one.
            LedgerOlder: Its tables are of an earlier headway; only an upgrade changes them.
        """
        return self._open_ledger(self.settings.database_url)

    def of_pool(self, pool: str) -> "Site":
        """The same node, as one of *pool*; with the same ledger, whose calls it hears by itself."""
        own = Site(self.settings.model_copy(update={"pool": pool}), self.clock, self._open_ledger)
        own.ledger = self.ledger.listener()
        return own

    def make_ledger(self) -> None:
        """Make the site's ledger where there is none yet."""
        have_passable(self.settings.home)
        Ledger.open(self.settings.database_url).close()

    @cached_property
    def chosen(self) -> ChosenRuntime:
        """Which runtime this node has, by its settings and as its worker chose it."""
        return ChosenRuntime(
            self.settings, self.clock, self.site_id, self._closed_services, self._unlimit
        )

    def _unlimit(self, group: Path) -> None:
        """Take back what a control group that goes was limited to of GPUs."""
        try:
            self.gpus.unlimit(group)
        except TelemetryError as error:  # removing the group takes them back, too
            log.warning("limits of %s are removed later, with it: %s", group.name, error)

    @cached_property
    def runtime(self) -> Runtime:
        """The engine or the process runtime: as set, else as this node's worker chose it."""
        kind = self.chosen.settled or self._which_runtime()
        return self.chosen.made(kind, self._runtime_policy(), self.node_settings.reserve_cpus)

    def choose_runtime(self) -> None:
        """Settle which runtime this node has until its worker is started anew."""
        if self.settings.runtime == "auto":
            self.chosen.settle(self._which_runtime())

    def _which_runtime(self) -> RuntimeKind:
        """That of a run which is under way here, else as `ChosenRuntime.found`."""
        for run in self.ledger.runs.on_node(self.settings.node):
            if run.runtime is not None:
                return RuntimeKind(run.runtime)
        return self.chosen.found(self._runtime_policy())

    def _closed_services(self) -> list[tuple[str, int]]:
        """Services of the site on other machines that containers may not reach."""
        urls: list[str] = []
        with suppress(LedgerError):  # what was closed before stays closed
            urls += self.ledger.nodes.files_urls()
            urls.append((self.ledger.settings.get(GATEWAY) or {}).get("url", ""))
        known = [found for url in urls if (found := service_of(url)) is not None]
        return [*self.settings.services, *known]

    def user_of(self, team: str) -> str:
        """``uid:gid`` that programs of *team* run as and that their files belong to.

        Each team's own where headway is root; empty for this process's owner.

        Raises:
            InvalidInput: The team has no uids yet, and no more are free.
        """
        if self.settings.container_user is not None:
            self._check_container_user()
            return self.settings.container_user
        if os.geteuid() != 0:
            return ""
        pool = self.container_policy.uids or UIDS_OF_TEAMS
        uid = self.ledger.team_uids.of(team, pool).first
        if self.ceiling is not None and (refused := uid_refusal(uid, self.ceiling)):
            raise refused
        return f"{uid}:{uid}"

    def maker_of(self, team: str, user: str) -> str:
        """``uid:gid`` that makes the environments of *team*, whose programs are *user*'s.

        The last uid of the team's range, which no program has; *user* where headway is not root,
        and can become nobody else.

        Raises:
            InvalidInput: The team has but one uid, or the ceiling does not allow the last one.
        """
        if not user or os.geteuid() != 0:
            return user
        last = self.ledger.team_uids.of(team, self.container_policy.uids or UIDS_OF_TEAMS).last
        uid, _, gid = user.partition(":")
        if str(last) == uid:
            allowed = (
                "give a range of at least two: the last one makes the environments of its runs"
            )
            raise InvalidInput(f"teams.{team}.uids", str(last), allowed)
        if self.ceiling is not None and (refused := uid_refusal(last, self.ceiling)):
            raise refused
        return f"{last}:{gid}"

    def _check_container_user(self) -> None:
        """Raise `InvalidInput` where the ceiling does not allow the user of all programs."""
        ceiling, user = self.ceiling, self.settings.container_user or ""
        for number in filter(None, user.split(":")):
            name = "HEADWAY_CONTAINER_USER"
            if ceiling is not None and (refused := uid_refusal(int(number), ceiling, name)):
                raise refused

    def _runtime_policy(self) -> ContainerPolicy:
        """The operator's policy; what headway itself keeps may always be mounted.

        Without the ceiling: whoever starts something asks for that, and what runs goes on.
        """
        policy = self._block
        files = self.settings
        kept = (files.runs_dir, files.cache_dir, files.secrets_dir, files.users_dir, files.work_dir)
        offered = (volume.path for volume in policy.volumes.values())
        own = (*kept, files.environments_dir, *filter(None, [files.nsys]), *offered)
        return policy.model_copy(update={"mount_roots": (*policy.mount_roots, *own)})

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
        """Staged data sets on this node, whoever's: to let go of. `cache_for` stages them."""
        return self.cache_reading(UserReader(as_ids(NOBODY), SourceRules(closed=("/",))))

    @cached_property
    def upload_chunks(self) -> UploadChunks:
        """What members have put, where this is the gateway's machine."""
        return UploadChunks(self.settings.uploads_dir, self.settings.data_limit_bytes)

    def cache_for(
        self,
        user: str,
        policy: ContainerPolicy,
        secret: Callable[[str], object] = no_secret,
    ) -> DataCache:
        """The same for *user*, as whom *policy* lets data be read; the copies are its alone.

        *secret* gives the value of a Secret block that *policy* names for a storage.
        """
        credentials = Credentials(policy.data_stores, self._store_url, secret)
        reader = UserReader(as_ids(user), self._source_rules(policy), credentials)
        return self.cache_reading(reader)

    @property
    def _store_url(self) -> str:
        url = self.settings.store_url
        return "" if url is None else url.get_secret_value()

    def cache_reading(self, reader: Reader) -> DataCache:
        """The same, of which *reader* gives what is not there."""
        budget_bytes = self.node_settings.cache_budget
        has_several = len(self.ledger.team_uids.all()) > 1
        return DataCache(
            self.settings.cache_dir,
            budget_bytes=budget_bytes,
            share_bytes=round(_SHARE_OF_A_TEAM * budget_bytes) if has_several else budget_bytes,
            index=self.ledger.staged,
            node=self.settings.node,
            reader=reader,
        )

    def _source_rules(self, policy: ContainerPolicy) -> SourceRules:
        """What data sets may be read from: the operator's policy, and never what headway keeps."""
        home = self.settings.home.resolve()
        store = local_path(self._store_url) if self._store_url else None
        kept = [home] if store is None else [home, Path(store).resolve()]
        return SourceRules(
            roots=tuple(str(root.resolve()) for root in policy.mount_roots),
            closed=tuple(map(str, kept)),
            samples=str(samples(home).resolve()),
            hosts=policy.data_hosts,
        )

    @property
    def estimators(self) -> "Estimators":
        """The champion; without one it knows nothing, and the prior decides.

        Loaded anew once a refit has chosen another: a gateway lives long.
        """
        from headway.estimate import store  # noqa: PLC0415 - numpy and scipy take half a second

        folder = self.settings.models_dir
        asked = store.current(folder)
        if self._estimators is None or self._estimators[0] != asked:
            self._estimators = (asked, store.load(folder, self.tables))
        return self._estimators[1]

    @property
    def tables(self) -> Tables:
        """What is known of GPUs and networks: data sheets and the home's files.

        A file of the home that is wrong is logged, and counts for nothing: admission goes on.
        """
        try:
            return with_site(self.settings.home)
        except InvalidInput as error:
            log.warning("%s; the tables that headway brings are used", error)
            return shipped()

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
    def ceiling(self) -> Ceiling | None:
        """What this node's owner lets the site do here at most; None where nothing is said.

        Raises:
            CeilingUnsafe: Not only root can have written it.
        """
        named = self.settings.ceiling
        return read_ceiling(named or CEILING, required=named is not None)

    @property
    def container_policy(self) -> ContainerPolicy:
        """What the operator set for containers in the policy block, within this node's ceiling.

        Raises:
            CeilingUnsafe: The ceiling cannot be trusted.
            InvalidInput: The block allows more than the ceiling.
        """
        return self.within_ceiling(self._block)

    def within_ceiling(self, policy: ContainerPolicy) -> ContainerPolicy:
        """*policy*, with its real paths. Raises as `container_policy`."""
        return check(with_real_roots(policy), self.ceiling)

    @property
    def _block(self) -> ContainerPolicy:
        """The policy block as the operator wrote it."""
        return ContainerPolicy.model_validate(self.ledger.settings.get(POLICY) or {})

    def policy_for(self, team: str, *, started: bool = False) -> ContainerPolicy:
        """The same, narrowed by the rules of *team*; without the ceiling for what has *started*.

        A ceiling bounds what is started: what runs goes on.
        """
        return for_team(with_real_roots(self._block) if started else self.container_policy, team)

    @property
    def port_ranges(self) -> dict[str, NumberRange]:
        """Ports of the host of the teams that have their own."""
        return self._block.port_ranges

    def why_closed(self) -> str:
        """Why this node starts nothing now; empty where it does."""
        try:
            kept = self.adopted.get(POLICY)  # which the node's worker has read lately
            block = self._block if kept is None else ContainerPolicy.model_validate(kept)
            self.within_ceiling(block)
            self._check_container_user()
        except (CeilingUnsafe, InvalidInput, ValueError) as error:
            return str(error)
        except LedgerError:
            return ""  # who asks the ledger hears that it is away
        return ""

    @property
    def policy_settings(self) -> PolicySettings:
        """What the operator set for the queue in its block."""
        return POLICY_SETTINGS.validate_python(self.ledger.settings.get(LINE) or {})

    def rebuild(self) -> None:
        """Let runtime and cache be built anew, from new settings, when they are next asked for."""
        for built in ("runtime", "cache"):
            self.__dict__.pop(built, None)


def as_ids(user: str) -> tuple[int, int] | None:
    """Ids of *user*, as `Site.user_of` writes it; None where this process is it."""
    if not user or os.geteuid() != 0:
        return None
    uid, gid = (int(part) for part in user.split(":"))
    return uid, gid


NOBODY = "65534:65534"

CEILING = Path("/etc/headway/ceiling.yaml")
"""Where a node's owner writes what the site may do there at most."""

POLICY = "policy"
"""Name under which the ledger keeps the container policy."""

GATEWAY = "gateway"
"""Name under which the ledger keeps where other machines reach the gateway."""

POLICY_SETTINGS = TypeAdapter(PolicySettings)


@lru_cache(maxsize=1)
def current_site(keep: Connections = Connections.MANY) -> Site:
    """The site of this process, from its environment; to *keep* so many connections to the ledger.

    From here on what the process and its children make is their user's alone.
    """
    keep_private()
    return Site(read_settings(), SystemClock(), partial(Ledger.find, keep=keep))
