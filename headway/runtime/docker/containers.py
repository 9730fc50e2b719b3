"""The Docker runtime: containers of one site at the engine of this host."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import requests
from docker.errors import APIError, DockerException, NotFound

from headway.cgroups import cpus_of_shares
from headway.clock import Clock
from headway.model.container_policy import ContainerPolicy, NetworkMode
from headway.model.exec_messages import ExecCommand
from headway.model.image import ImageReference
from headway.runtime import logfile
from headway.runtime.docker import creation, images
from headway.runtime.docker.engine import Engine, asking, ordering
from headway.runtime.docker.execution import DockerExecution
from headway.runtime.docker.firewall import Service
from headway.runtime.docker.networks import Networks
from headway.runtime.docker.status import (
    from_details,
    from_list,
    own_folders,
    publishes,
    state_of,
    was_killed,
    weaknesses,
    why_not_started,
)
from headway.runtime.errors import (
    ContainerMissing,
    EngineUnreachable,
    PolicyViolation,
    RuntimeFailure,
)
from headway.runtime.listening import listens
from headway.runtime.logfile import LogChunk
from headway.runtime.port import (
    BindMount,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    RuntimeKind,
    Usage,
)
from headway.runtime.rules import check_image, check_spec
from headway.runtime.run_groups import MemoryPeak, RunGroups

_POLL_S = 0.05

log = logging.getLogger(__name__)


class DockerRuntime:
    """Runs containers in a Docker engine on this host.

    Args:
        site: Labels this site's containers; no other is ever touched.
        policy: What containers may do.
        clock: Waits between questions about a container.
        docker_host: Address of the engine; None for the SDK's default.
        timeout_s: How long the engine may take for one answer.
        closed: Asked for host and port of services on other machines that containers may not
            reach now.
        reserve_cpus: Held back on this node from runs.
        let_go: See `RunGroups`.
    """

    kind = RuntimeKind.DOCKER

    def __init__(
        self,
        site: str,
        policy: ContainerPolicy,
        clock: Clock,
        *,
        docker_host: str | None = None,
        timeout_s: int = 60,
        closed: Callable[[], Sequence[Service]] = tuple,
        reserve_cpus: float = 0.0,
        let_go: Callable[[Path], None] = lambda _folder: None,
    ) -> None:
        self.engine = Engine(docker_host, timeout_s)
        self._site = site
        self._policy = policy
        self._clock = clock
        self._networks = Networks(self.engine, policy, closed)
        self._run_groups = RunGroups(site, reserve_cpus, let_go)
        self._groups = self._run_groups.cgroups
        self._peaks: dict[str, MemoryPeak] = {}
        self._noting = Lock()

    # ----- what the engine can do -----

    def weaknesses(self) -> tuple[str, ...]:
        """What this engine cannot enforce or measure, one sentence each."""
        found = weaknesses(self.engine.info, self._policy, has_own_group=self._own_group)
        amiss = self.guard_network()
        return (*found, amiss) if amiss else found

    def path_in_container(self, mount: BindMount) -> str:
        """The mount's target."""
        return mount.target

    def ensure_image(self, image: str) -> str:
        """Pull *image* unless it is here; its id. Raises `ImageMissing`, `PolicyViolation`."""
        check_image(image, self._policy)
        return str(images.have_image(self.engine, ImageReference.parse(image))["Id"])

    def why_no_image(self, image: str) -> str | None:
        """Why *image* is neither here nor at its registry; empty where it is."""
        return images.why_no_image(self.engine, image)

    def pythons(self, named: Mapping[str, str]) -> Mapping[str, str]:
        """Those of *named* whose image is here."""
        return {key: image for key, image in named.items() if images.is_here(self.engine, image)}

    def guard_network(self) -> str:
        """Put the packet rules of the bridges in place; what of that cannot be had."""
        return self._networks.weakness()

    # ----- life of a container -----

    def create(self, spec: ContainerSpec) -> None:
        """Create, do not start. Raises `ContainerExists`, `ImageMissing`, `PolicyViolation`."""
        check_spec(spec, self._policy)
        network = self._networks.joined(spec.network)
        if spec.ports and network == NetworkMode.NONE:
            raise PolicyViolation(
                "ports",
                ", ".join(map(str, spec.ports)),
                f"none: the container would have no network. {self._networks.weakness()}".strip(),
            )
        creation.Creation(
            self.engine,
            spec,
            self._policy,
            self._site,
            network=network,
            parent_group=self._run_groups.path(spec.name) if self._own_group else None,
        ).run()

    def gpu_group(self, name: str) -> Path | None:
        """The group around the engine's own, where that is of version 2."""
        usable = self._own_group and self._groups.is_unified
        return self._run_groups.gpu_group(name) if usable else None

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is.

        The engine itself would run an ended one again: question and start are
        held together by a lock on the container's log file.
        """
        log_path, timeout_s = Path(self._labels(name)[creation.LOG]), self.engine.timeout_s
        locked = logfile.locked(log_path, self._clock, timeout_s)
        with locked as is_ours, ordering(f"start container {name}"):
            if not is_ours:
                raise RuntimeFailure(
                    f"container {name} is being started by another process that does not get on "
                    f"for {timeout_s} s; it is tried again"
                )
            found = self._found(name)
            if self._read(found).state is not ContainerState.CREATED:
                return
            if self._own_group:
                limits = found["HostConfig"]
                self._run_groups.weigh(name, cpus_of_shares(limits["CpuShares"]))
                self._run_groups.limit_connections(name, found["Id"], limits["Memory"])
            try:
                self.engine.api.start(name)
            except APIError as error:
                self._found(name)
                raise RuntimeFailure(why_not_started(name, error)) from error

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist, or is not this site's."""
        try:
            return self._read(self._found(name))
        except ContainerMissing:
            return None

    def serves(self, name: str, port: int) -> bool:
        """Whether the engine publishes it there; on the host's network, whether it listens."""
        try:
            found = self._found(name)
        except ContainerMissing:
            return False
        if found["HostConfig"]["NetworkMode"] == NetworkMode.HOST.value:
            return listens(self._read(found).pids, port)
        return publishes(found, port)

    def execute(self, name: str, command: ExecCommand) -> DockerExecution:
        """Start *command* beside the program of a container that runs, as the same user."""
        found = self._found(name)
        state = state_of(found["State"]["Status"])
        if state is not ContainerState.RUNNING:
            raise RuntimeFailure(f"container {name} does not run: it is {state.value}")

        def pids() -> tuple[int, ...]:
            try:
                return self._read(self._found(name)).pids
            except (ContainerMissing, RuntimeFailure):  # what was in it has ended with it
                return ()

        return DockerExecution(self.engine, self._clock, found, command, pids)

    def containers(self) -> list[ContainerStatus]:
        """Every container of this site on this node, whatever its state."""
        found = (self._status(row) for row in self._rows())
        return [status for status in found if status is not None]

    def wait(self, name: str, timeout_s: float) -> ContainerStatus:
        """Wait up to *timeout_s* for the end; the status then. Raises `ContainerMissing`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            found = self._found(name)
            status = self._read(found)
            left_s = deadline_s - self._clock.monotonic_s()
            if status.state is ContainerState.EXITED:
                with asking(f"hear what became of container {name}"):
                    was = was_killed(self.engine.api, found["Id"], status)
                return replace(status, oom_killed=was)
            if left_s <= 0:
                return status
            if status.state is ContainerState.CREATED:  # the engine would not wait for it
                self._clock.sleep(min(_POLL_S, left_s))
                continue
            try:
                self.engine.api.wait(name, timeout=left_s)  # type: ignore[arg-type]  # floats work
            except requests.exceptions.RequestException:
                continue  # its time is up, or the engine is gone: the next question tells which
            except DockerException:  # it cannot wait now, but may still be asked
                self._clock.sleep(min(_POLL_S, left_s))

    def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM, *grace_s* to obey, SIGKILL. A container that is gone is fine."""
        if self.inspect(name) is None:
            return
        self._run_groups.thaw(name)
        with ordering(f"stop container {name}"):
            try:
                self.engine.api.stop(name, timeout=math.ceil(grace_s))
            except NotFound:
                return

    def limit_memory(self, name: str, host_memory_bytes: int) -> None:
        """Have the engine raise the limit of a container that runs."""
        found = self._found(name)
        if state_of(found["State"]["Status"]) is not ContainerState.RUNNING:
            return
        if self._own_group:
            self._run_groups.limit_connections(name, found["Id"], host_memory_bytes)
        with ordering(f"raise the memory limit of container {name}"):
            self.engine.api.update_container(
                name, mem_limit=host_memory_bytes, memswap_limit=host_memory_bytes
            )

    def remove(self, name: str) -> None:
        """Kill if need be and remove, its cgroup too. Idempotent."""
        if self.inspect(name) is not None:
            self._run_groups.thaw(name)
            with ordering(f"remove container {name}"):
                try:
                    self.engine.api.remove_container(name, force=True, v=True)
                except APIError as error:
                    if error.status_code not in (404, 409):  # it is gone, or is being removed
                        raise
        if self._own_group:
            self._run_groups.remove(name)
        self._peaks.pop(name, None)

    # ----- what it used and printed -----

    def usage(self, name: str) -> Usage:
        """What it used until now; also after its exit, until `remove`.

        The peak is put together from all readings: the more often it is
        asked for while it runs, the more exact.
        """
        if self._own_group:
            self._measure(name, self._run_groups.path(name))
        else:
            self.inspect(name)
        return self._peaks.get(name, MemoryPeak()).usage()

    def _measure(self, name: str, group: str) -> None:
        reading = self._groups.read(group)
        if reading is not None:
            with self._noting:
                self._peaks[name] = self._peaks.get(name, MemoryPeak()).after(reading)

    def frozen(self, name: str) -> AbstractContextManager[bool]:
        """Nothing of it runs meanwhile; False without groups of headway's own."""
        return self._run_groups.frozen(name)

    def own_folders(self, name: str) -> tuple[Path, ...]:
        """Its writable layer, and the volumes that its image declares."""
        try:
            return own_folders(self._found(name))
        except ContainerMissing:
            return ()

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*. Raises `ContainerMissing`."""
        return logfile.read_chunk(Path(self._labels(name)[creation.LOG]), offset, limit_bytes)

    def trim_logs(self) -> None:
        """Give up the oldest part of every log that is over its limit; offsets stay valid."""
        for row in self._rows():
            labels = row["Labels"]
            try:
                logfile.trim(Path(labels[creation.LOG]), int(labels[creation.LOG_LIMIT]))
            except (KeyError, ValueError, OSError) as error:
                log.warning("the log of container %s is not trimmed: %r", row["Id"][:12], error)

    def sweep(self) -> None:
        """Remove the control groups of containers that others have removed."""
        if self._own_group:
            self._run_groups.sweep(
                lambda: {name.lstrip("/") for row in self._rows() for name in row["Names"]}
            )

    # ----- what the engine says of it -----

    def _found(self, name: str) -> dict[str, Any]:
        """What the engine knows of a container of this site. Raises `ContainerMissing`."""
        with asking(f"inspect container {name}"):
            try:
                found: dict[str, Any] = self.engine.api.inspect_container(name)
            except NotFound as error:
                raise ContainerMissing(name) from error
        if found["Config"]["Labels"].get(creation.SITE) != self._site:
            raise ContainerMissing(name)
        return found

    def _labels(self, name: str) -> Mapping[str, str]:
        labels: Mapping[str, str] = self._found(name)["Config"]["Labels"]
        return labels

    def _rows(self) -> list[dict[str, Any]]:
        """The engine's list of this site's containers."""
        with asking("list its containers"):
            rows: list[dict[str, Any]] = self.engine.api.containers(
                all=True, filters={"label": f"{creation.SITE}={self._site}"}
            )
        return rows

    def _status(self, row: Mapping[str, Any]) -> ContainerStatus | None:
        """One container of the list; None where it was removed since, or is not headway's.

        An engine may fail at one container for good, whose folder is damaged say. The others
        must not be taken for gone because of it, nor must this one.
        """
        try:
            return self._read(self._found(row["Id"]))
        except ContainerMissing:
            return None
        except EngineUnreachable as error:
            if not isinstance(error.__cause__, APIError):
                raise  # it does not answer at all
            why: Exception = error
        except (KeyError, TypeError, ValueError) as error:
            why = error
        log.warning("container %s is known by the engine's list alone: %r", row["Id"][:12], why)
        return from_list(row)

    def _read(self, found: Mapping[str, Any]) -> ContainerStatus:
        runs = state_of(found["State"]["Status"]) is ContainerState.RUNNING
        return from_details(
            found,
            pids=self._pids(found["Name"].lstrip("/"), found) if runs else (),
            gang_networks=self._policy.gang_networks,
        )

    def _pids(self, name: str, found: Mapping[str, Any]) -> tuple[int, ...]:
        """Processes of a container that runs; its use is read with them if it can only be now."""
        first = found["State"]["Pid"]
        group = self._groups.group_of(first)
        if group is None or found["Id"] not in group:
            return (first,)  # just starting or gone: there it would count other processes
        if not self._own_group:
            self._measure(name, group)
        return self._groups.pids(group)

    @cached_property
    def _own_group(self) -> bool:
        """May containers be put below a group of ours?

        Not with the systemd driver: it removes a slice with its last
        process, and the peak with it.
        """
        cgroupfs = self.engine.info.get("CgroupDriver") == "cgroupfs"
        return bool(cgroupfs and self._groups.writable())
