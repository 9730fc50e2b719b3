"""Containers in Docker. The only import of the Docker SDK."""

import fcntl
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, LogConfig, Mount
from docker.utils import kwargs_from_env

from headway.cgroups import Cgroups
from headway.clock import Clock
from headway.errors import (
    ContainerExists,
    ContainerMissing,
    EngineUnreachable,
    ImageMissing,
    RuntimeFailure,
    shown,
)
from headway.model.image import ImageReference
from headway.model.policy import (
    OWN_NETWORK,
    ContainerPolicy,
    GangNetwork,
    NetworkMode,
    RootFilesystem,
)
from headway.runtime import logfile
from headway.runtime.enginelog import fetch_into
from headway.runtime.firewall import Service
from headway.runtime.memory_peak import MemoryPeak
from headway.runtime.networks import Networks, is_bridge
from headway.runtime.port import (
    BindMount,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    LogChunk,
    RuntimeKind,
    Usage,
)
from headway.runtime.rules import LOG_TARGET, check_image, check_spec, real_source
from headway.units import MIB

_PULL_TIMEOUT_S = 1800
_REGISTRY_S = 5
"""Somebody waits for what the registry says."""
_NOT_THERE = re.compile(r"(manifest|name) unknown|not known to registry|: not found")
"""How registries say it through the engine; another 404 is of an engine that cannot ask."""
_POLL_S = 0.05
_SHELL = "/bin/sh"
# Appended by the program itself: nothing between it and the file can lose a line.
_LOGGED = (_SHELL, "-c", f'exec "$@" >>{LOG_TARGET} 2>&1', "headway")
_STATES = {
    "created": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
}
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)")


class DockerRuntime:
    """Runs containers in a Docker engine on this host.

    The engine is first spoken to when a method is called, so the site can be
    built while it is down.

    Args:
        site: Labels this site's containers; no other is ever looked at.
        policy: What containers may do.
        clock: Waits between looks at a container.
        docker_host: Address of the engine; None for the SDK's default.
        timeout_s: How long the engine may take for one answer.
        closed: Host and port of services on other machines that containers may not reach.
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
        closed: Sequence[Service] = (),
    ) -> None:
        self.site = site
        self.policy = policy
        self._clock = clock
        self._host = docker_host
        self._timeout_s = timeout_s
        self._networks = Networks(lambda: self._api, docker_host)
        self._closed = closed
        self._groups = Cgroups()
        self._peaks: dict[str, MemoryPeak] = {}

    # ----- what the engine can do -----

    def weaknesses(self) -> tuple[str, ...]:
        """What this engine cannot enforce or measure, one sentence each."""
        info = self._info
        found = []
        if not info.get("SwapLimit"):
            found.append("This kernel does not limit swap: a container may swap past its memory.")
        if not info.get("PidsLimit"):
            found.append("This engine does not limit the number of processes.")
        if not info.get("CpuCfsQuota"):
            found.append("This engine does not limit CPU time.")
        if os.geteuid() != 0:
            found.append(
                "headway is not root: what a container writes outside its mounts does not count "
                "against resources.disk."
            )
        if not self._own_group:
            found.append(
                "The memory peak is read while a container runs; a peak in its last second "
                "may be missed."
            )
        amiss = self.guard_network()
        return (*found, amiss) if amiss else tuple(found)

    def path_in_container(self, mount: BindMount) -> str:
        """The mount's target."""
        return mount.target

    def ensure_image(self, image: str) -> None:
        """Pull *image* unless it is here. Raises `ImageMissing`, `PolicyViolation`."""
        check_image(image, self.policy)
        self._image_id(ImageReference.parse(image))

    def _image_id(self, image: ImageReference) -> str:
        """Id of the image that has this name on this node now; pulled if it is not here."""
        name = str(image)
        with self._asking(f"look for image {name}"):
            for pulled in (False, True):
                try:
                    # By its full name: a short one may also be the beginning of an id.
                    found = self._api.inspect_image(name)  # type: ignore[no-untyped-call]  # the stubs' gap
                    return str(found["Id"])
                except NotFound as error:
                    if pulled:
                        raise ImageMissing(name, "it is not there once pulled") from error
                    self._pull(image)
                except APIError as error:
                    if error.is_server_error():
                        raise
                    # A name the engine cannot read.
                    raise ImageMissing(name, str(error.explanation)) from error
        raise AssertionError(image)  # pragma: no cover - the loop returns or raises

    def why_no_image(self, image: str) -> str:
        """Why *image* is neither here nor at its registry; empty where it is, or nobody can say.

        Only a registry that answers that it has none says so: one that cannot be
        reached or refuses may give it to the worker, which has credentials of its own.
        """
        try:
            with closing(self._connect(_REGISTRY_S)) as api:
                name = str(ImageReference.parse(image))
                try:
                    api.inspect_image(name)  # type: ignore[no-untyped-call]  # the stubs' gap
                except NotFound:
                    api.inspect_distribution(name)  # type: ignore[no-untyped-call]
        except NotFound as error:
            said = str(error.explanation)
            return shown(said, 200)[1:-1] if _NOT_THERE.search(said) else ""
        except (requests.exceptions.RequestException, DockerException):
            pass
        return ""

    def _pull(self, image: ImageReference) -> None:
        name, repository = str(image), f"{image.registry}/{image.repository}"
        with closing(self._connect(_PULL_TIMEOUT_S)) as api:
            try:
                for event in api.pull(
                    repository, tag=image.digest or image.tag, stream=True, decode=True
                ):
                    if "error" in event:
                        raise ImageMissing(name, shown(event["error"], 300))
            except APIError as error:
                raise ImageMissing(name, shown(str(error.explanation), 300)) from error

    # ----- life of a container -----

    def create(self, spec: ContainerSpec) -> None:
        """Create, do not start. Raises `ContainerExists`, `ImageMissing`, `PolicyViolation`."""
        check_spec(spec, self.policy)
        mounts = [
            Mount(
                mount.target,
                str(real_source(mount, self.policy.mount_roots)),
                type="bind",
                read_only=mount.read_only,
            )
            for mount in spec.mounts
        ]
        uid, gid = (int(part) for part in _user(spec).split(":"))
        os.close(logfile.open_log(spec.log_path, (uid, gid) if os.geteuid() == 0 else None))
        log = Mount(LOG_TARGET, str(spec.log_path.resolve()), type="bind")
        mounts += self._over_volumes(spec)
        container = self._create(spec, [*mounts, log], logged=True)
        if not self._has_shell(container):
            with self._telling(f"create container {spec.name} again without a shell"):
                self._api.remove_container(container, v=True)
            self._create(spec, mounts, logged=False)

    def _over_volumes(self, spec: ContainerSpec) -> list[Mount]:
        """What lies over the volumes that the image declares, where the root is read-only.

        Else they would be a writable place on the node's disk; as it is they count as memory.
        """
        if self.policy.root_filesystem is not RootFilesystem.READ_ONLY:
            return []
        self.ensure_image(spec.image)
        with self._asking(f"look for image {spec.image}"):
            found = self._api.inspect_image(spec.image)  # type: ignore[no-untyped-call]
        ours = {PurePosixPath("/tmp"), *(PurePosixPath(mount.target) for mount in spec.mounts)}
        declared = found["Config"].get("Volumes") or {}
        return [
            Mount(target, None, type="tmpfs")
            for target in sorted(declared)
            if PurePosixPath(target) not in ours
        ]

    def _create(self, spec: ContainerSpec, mounts: list[Mount], *, logged: bool) -> str:
        """Create, with a limit on the container's own disk where the engine takes one; the id."""
        if spec.disk_bytes is not None and self._limits_layers:
            try:
                return self._create_with(spec, mounts, logged=logged, layer_bytes=spec.disk_bytes)
            except (ContainerExists, ImageMissing):
                raise
            except RuntimeFailure:
                self._limits_layers = False  # its file system was mounted without project quotas
        return self._create_with(spec, mounts, logged=logged, layer_bytes=None)

    @cached_property
    def _limits_layers(self) -> bool:
        """May this engine be able to? Only an attempt tells."""
        status = dict(pair for pair in self._info.get("DriverStatus") or () if len(pair) == 2)
        on_xfs = status.get("Backing Filesystem") == "xfs"
        return (self._info.get("Driver") == "overlay2" and on_xfs) or self._info.get("Driver") in {
            "btrfs",
            "zfs",
        }

    def _create_with(
        self, spec: ContainerSpec, mounts: list[Mount], *, logged: bool, layer_bytes: int | None
    ) -> str:
        """Create by a closed list of settings; the id. Nothing else reaches the engine."""
        api = self._api
        image = ImageReference.parse(spec.image)
        read_only = self.policy.root_filesystem is RootFilesystem.READ_ONLY
        network = self._network_of(spec)
        published = () if network == NetworkMode.HOST else spec.ports
        host_config = api.create_host_config(
            mounts=mounts,
            mem_limit=spec.host_memory_bytes,
            memswap_limit=spec.host_memory_bytes,
            nano_cpus=int(spec.cpus * 1e9),
            pids_limit=spec.pids,
            shm_size=spec.shm_bytes,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            init=True,
            read_only=read_only,
            storage_opt=None if layer_bytes is None else {"size": str(layer_bytes)},
            tmpfs={"/tmp": "rw,nosuid,nodev,exec"} if read_only else None,
            network_mode=network,
            port_bindings={port: ("127.0.0.1", port) for port in published},
            device_requests=_gpu_request(spec),
            cgroup_parent=self._group(spec.name) if self._own_group else None,
            log_config=LogConfig(
                type=LogConfig.types.JSON,
                config={"max-size": str(MIB if logged else spec.log_limit_bytes), "max-file": "2"},
            ),
        )
        labels = {
            "headway.site": self.site,
            "headway.run": spec.run_id,
            "headway.attempt": str(spec.attempt),
            "headway.log": str(spec.log_path),
            "headway.log_limit": str(spec.log_limit_bytes),
            "headway.log_by": "program" if logged else "engine",
            "headway.image": str(image),
        }
        for pulled in (False, True):
            with self._telling(f"create container {spec.name}"):
                try:
                    created = api.create_container(
                        self._image_id(image),  # what its name means now, whatever it will
                        [*(spec.wrapper if logged else ()), *spec.command],
                        entrypoint=list(_LOGGED) if logged else [],
                        name=spec.name,
                        user=_user(spec),
                        environment=_environment(spec),
                        stop_signal="SIGTERM",
                        ports=list(published),
                        labels=labels,
                        host_config=host_config,
                        healthcheck={"test": ["NONE"]},
                        network_disabled=network == NetworkMode.NONE,
                        # A gang's head is told its own name as the place where all meet.
                        hostname=spec.name if isinstance(spec.network, GangNetwork) else None,
                    )
                    return str(created["Id"])
                except NotFound as error:  # removed in between
                    if pulled:
                        raise ImageMissing(spec.image, str(error.explanation)) from error
                except APIError as error:
                    if error.status_code == 409:
                        raise ContainerExists(spec.name) from error
                    raise
        raise AssertionError(spec.name)  # pragma: no cover - the loop returns or raises

    def _network_of(self, spec: ContainerSpec) -> str:
        """The engine's network that the container joins, with its rules in place."""
        wanted = spec.network or self.policy.network
        if isinstance(wanted, GangNetwork):
            self._guard_gang(wanted)
            return wanted.name
        if wanted in {NetworkMode.HOST, NetworkMode.NONE}:
            return wanted.value
        why = self._why_unguarded()
        return NetworkMode.NONE.value if why and wanted is NetworkMode.BRIDGE else OWN_NETWORK

    def _guard_gang(self, network: GangNetwork) -> None:
        if self.policy.network in {NetworkMode.UNGUARDED, NetworkMode.HOST}:
            return
        with self._asking(f"look for network {network.name}"):
            found = self._networks.find(network.name)
        why = self._why_unguarded() if found is not None and is_bridge(found) else ""
        if why:
            raise RuntimeFailure(
                f"the network {network.name} is a bridge of this node, and a container on it would "
                f"reach the node's services: {why}. Let headway set packet rules, or set network "
                "to unguarded in the block headway-container-policy/site"
            )

    def _why_unguarded(self, closed: Sequence[Service] = ()) -> str:
        with self._asking("look after its networks"):
            return self._networks.hold(self._gang_network(), closed)

    def _gang_network(self) -> str:
        name = self.policy.gang_network
        return "" if name == NetworkMode.HOST else name

    def guard_network(self) -> str:
        """Put the packet rules of the bridges in place; what of that cannot be had."""
        gang, mode = self._gang_network(), self.policy.network
        if not gang and mode in {NetworkMode.HOST, NetworkMode.NONE}:
            return ""
        # Not with each start: a name server that does not answer would hold it up.
        why = self._why_unguarded(self._closed)
        if why and mode is NetworkMode.BRIDGE:
            return (
                f"Containers have no network, since it cannot be guarded ({why}). Let headway set "
                "packet rules, or set network to unguarded in the block "
                "headway-container-policy/site."
            )
        if why:
            return f"Containers reach the services of this node ({why})."
        with self._asking(f"look for network {gang}"):
            found = self._networks.find(gang) if gang else None
        if found is not None and not is_bridge(found) and not found["Internal"]:
            return (
                f"Packet rules do not guard the network {gang} (driver {found['Driver']}): "
                "make it --internal where gangs need nothing else."
            )
        return ""

    def _has_shell(self, container: str) -> bool:
        """Is there a shell in the container's own root? 2 ms, without starting it."""
        api = self._api
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/archive"
        with self._asking("look into a container"):
            answer = api.head(url, params={"path": _SHELL}, timeout=self._timeout_s)
        return bool(answer.status_code == 200)

    def start(self, name: str) -> None:
        """Start a created container; one that runs or ran is left as it is.

        The engine itself would run an ended one again: look and start are
        held together by a lock on its log file.
        """
        log_path = Path(self._labels(name)["headway.log"])
        with self._start_lock(log_path, name), self._telling(f"start container {name}"):
            if self._status(name).state is not ContainerState.CREATED:
                return
            try:
                self._api.start(name)
            except NotFound as error:
                if self.inspect(name) is None:
                    raise ContainerMissing(name) from error
                self._refused(name, error)
            except APIError as error:
                self._refused(name, error)

    @contextmanager
    def _start_lock(self, log_path: Path, name: str) -> Iterator[None]:
        fd = os.open(log_path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            give_up_s = self._clock.monotonic_s() + self._timeout_s
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._clock.monotonic_s() > give_up_s:
                        raise RuntimeFailure(
                            f"container {name} is being started by another process that does not "
                            f"get on for {self._timeout_s} s; it is looked at again"
                        ) from None
                    self._clock.sleep(_POLL_S)
            yield
        finally:
            os.close(fd)

    def _refused(self, name: str, error: APIError) -> NoReturn:
        cause = str(error.explanation or error)
        if "could not select device driver" in cause:  # the engine gives nothing but text
            cause += (
                ". The engine has no NVIDIA runtime: install nvidia-container-toolkit, run "
                "`nvidia-ctk runtime configure` and restart the engine"
            )
        elif "port is already allocated" in cause or "address already in use" in cause:
            cause += ". Another program of this node has the port: give the job another one"
        elif re.search("network .* not found", cause):
            cause += (
                ". Make it on this engine, or change gang_network of the block "
                "headway-container-policy/site"
            )
        raise RuntimeFailure(f"container {name} could not be started: {cause}") from error

    def inspect(self, name: str) -> ContainerStatus | None:
        """The container's status; None when it does not exist, or is not this site's."""
        with self._asking(f"inspect container {name}"):
            try:
                found = self._api.inspect_container(name)
            except NotFound:
                return None
        if found["Config"]["Labels"].get("headway.site") != self.site:
            return None
        return self._read(found)

    def _status(self, name: str) -> ContainerStatus:
        status = self.inspect(name)
        if status is None:
            raise ContainerMissing(name)
        return status

    def _read(self, found: Mapping[str, Any]) -> ContainerStatus:
        name = found["Name"].lstrip("/")
        labels, state = found["Config"]["Labels"], found["State"]
        where = _STATES.get(state["Status"], ContainerState.EXITED)
        started_at, ended_at = _moment(state["StartedAt"]), _moment(state["FinishedAt"])
        if started_at and ended_at:
            # The engine notes a start late: a program of 2 ms ends before it.
            ended_at = max(started_at, ended_at)
        pids: tuple[int, ...] = ()
        if where is ContainerState.RUNNING:
            group = self._groups.group_of(state["Pid"])
            if group is not None and found["Id"] not in group:
                group = None  # just starting or gone: there it would count other processes
            pids = self._groups.pids(group) if group else (state["Pid"],)
            if not self._own_group:
                self._look(name, group)
        return ContainerStatus(
            name=name,
            run_id=labels["headway.run"],
            attempt=int(labels["headway.attempt"]),
            state=where,
            exit_code=state["ExitCode"] if where is ContainerState.EXITED else None,
            oom_killed=bool(state["OOMKilled"]),
            started_at=started_at,
            ended_at=ended_at if where is ContainerState.EXITED else None,
            pids=pids,
            address=_address(found, self._gang_network()),
            error=state["Error"],
        )

    def containers(self) -> list[ContainerStatus]:
        """Every container of this site on this node, whatever its state."""
        return [self._read(found) for found in self._inspect_all()]

    def _inspect_all(self) -> list[dict[str, Any]]:
        found = []
        with self._asking("list its containers"):
            for row in self._api.containers(
                all=True, filters={"label": f"headway.site={self.site}"}
            ):
                try:
                    found.append(self._api.inspect_container(row["Id"]))
                except NotFound:  # removed since
                    continue
        return found

    def wait(self, name: str, timeout_s: float) -> ContainerStatus:
        """Wait up to *timeout_s* for the end; the status then. Raises `ContainerMissing`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            status = self._status(name)
            left_s = deadline_s - self._clock.monotonic_s()
            if status.state is ContainerState.EXITED or left_s <= 0:
                return status
            if status.state is ContainerState.CREATED:  # the engine would not wait for it
                self._clock.sleep(min(_POLL_S, left_s))
                continue
            try:
                self._api.wait(name, timeout=left_s)  # type: ignore[arg-type]  # floats work
            except requests.exceptions.RequestException:
                continue  # its time is up, or the engine is gone: the next look tells which
            except DockerException:
                self._clock.sleep(min(_POLL_S, left_s))  # it cannot wait now, but may still look

    def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM, *grace_s* to obey, SIGKILL. A container that is gone is fine."""
        if self.inspect(name) is None:
            return
        with self._telling(f"stop container {name}"):
            try:
                self._api.stop(name, timeout=math.ceil(grace_s))
            except NotFound:
                return

    def remove(self, name: str) -> None:
        """Kill if need be and remove, its cgroup too. Idempotent."""
        if self.inspect(name) is not None:
            with self._telling(f"remove container {name}"):
                try:
                    self._api.remove_container(name, force=True, v=True)
                except NotFound:
                    pass
                except APIError as error:
                    if error.status_code != 409:  # 409: another process removes it just now
                        raise
        if self._own_group:
            self._remove_group(name)
        self._peaks.pop(name, None)

    def _remove_group(self, name: str) -> None:
        try:
            self._groups.remove(self._group(name))
        except OSError as error:
            raise RuntimeFailure(
                f"container {name} is removed, but not its control group ({error.strerror}): "
                "one of its processes may live on, as in state D; look for it with ps"
            ) from error

    # ----- what it used and printed -----

    def usage(self, name: str) -> Usage:
        """What it used until now; also after its exit, until `remove`.

        The peak is put together from all looks at it: the more often it is
        asked for while it runs, the more exact.
        """
        if self._own_group:
            self._look(name, self._group(name))
        else:
            self.inspect(name)
        return self._peaks.get(name, MemoryPeak()).usage()

    def _look(self, name: str, group: str | None) -> None:
        reading = self._groups.read(group) if group else None
        if reading is not None:
            self._peaks[name] = self._peaks.get(name, MemoryPeak()).after(reading)

    def own_folders(self, name: str) -> tuple[Path, ...]:
        """Its writable layer, and the volumes that its image declares."""
        with self._asking(f"inspect container {name}"):
            try:
                found = self._api.inspect_container(name)
            except NotFound:
                return ()
        layer = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
        volumes = [each["Source"] for each in found["Mounts"] if each["Type"] == "volume"]
        folders = (Path(folder) for folder in (layer, *volumes) if folder)
        return tuple(folder for folder in folders if os.access(folder, os.R_OK | os.X_OK))

    def read_log(self, name: str, offset: int, limit_bytes: int = 1 << 20) -> LogChunk:
        """At most *limit_bytes* of the log from *offset*. Raises `ContainerMissing`."""
        labels = self._labels(name)
        path = Path(labels["headway.log"])
        if labels["headway.log_by"] == "engine":
            self._fetch_log(name, path)
        return logfile.read_chunk(path, offset, limit_bytes)

    def _fetch_log(self, name: str, path: Path) -> None:
        def fetch(stream: str, after: str) -> bytes:
            with self._asking(f"read the log of container {name}"):
                answer: bytes = self._api.logs(
                    name,
                    stdout=stream == "stdout",
                    stderr=stream == "stderr",
                    timestamps=True,
                    since=_seconds(after) if after else None,
                )
                return answer

        fetch_into(path, fetch)

    def trim_logs(self) -> None:
        """Give up the oldest part of every log that is over its limit; offsets stay valid."""
        for found in self._inspect_all():
            labels = found["Config"]["Labels"]
            logfile.trim(Path(labels["headway.log"]), int(labels["headway.log_limit"]))

    # ----- the engine -----

    def _labels(self, name: str) -> Mapping[str, str]:
        with self._asking(f"inspect container {name}"):
            try:
                labels: Mapping[str, str] = self._api.inspect_container(name)["Config"]["Labels"]
            except NotFound as error:
                raise ContainerMissing(name) from error
        if labels.get("headway.site") != self.site:
            raise ContainerMissing(name)
        return labels

    def _group(self, name: str) -> str:
        return f"/headway/{self.site}-{name}"

    @cached_property
    def _own_group(self) -> bool:
        """May containers be put below a group of ours?

        Not with the systemd driver: it removes a slice with its last
        process, and the peak with it.
        """
        return bool(self._info.get("CgroupDriver") == "cgroupfs" and self._groups.writable())

    @cached_property
    def _info(self) -> dict[str, Any]:
        with self._asking("ask what it can do"):
            info: dict[str, Any] = self._api.info()
        return info

    @cached_property
    def _api(self) -> docker.APIClient:
        with self._asking("connect"):
            return self._connect(self._timeout_s)

    @property
    def address(self) -> str:
        """Where the engine is looked for."""
        return self._host or kwargs_from_env().get("base_url") or "unix:///var/run/docker.sock"

    def expected(self) -> bool:
        """Should an engine be there: is its socket, or was its address given?

        A socket that this user may not open is somebody else's engine.
        """
        scheme, _, path = self.address.partition("://")
        if "unix" not in scheme:
            return True
        return os.access(f"/{path.lstrip('/')}", os.R_OK | os.W_OK)

    def _connect(self, timeout_s: int) -> docker.APIClient:
        environment = kwargs_from_env()
        if self._host:
            environment["base_url"] = self._host
        return docker.APIClient(version="auto", timeout=timeout_s, **environment)

    @contextmanager
    def _asking(self, action: str) -> Iterator[None]:
        """As `_telling`, for a question: a server error is no answer to it, so it may be repeated.

        Of an order it would be the answer: that is how the engine says that a
        container cannot be created or started.
        """
        with self._telling(action):
            try:
                yield
            except APIError as error:
                if not error.is_server_error():
                    raise
                cause = shown(str(error.explanation or error), 200)
                raise EngineUnreachable(action, cause) from error

    @contextmanager
    def _telling(self, action: str) -> Iterator[None]:
        """Turn the SDK's errors into ours."""
        try:
            yield
        except (NotFound, requests.exceptions.RequestException, DockerException) as error:
            if isinstance(error, APIError):
                raise RuntimeFailure(
                    f"the container engine refused to {action}: {error.explanation or error}"
                ) from error
            raise EngineUnreachable(action, shown(str(error), 200)) from error


def _user(spec: ContainerSpec) -> str:
    # A uid alone would get group 0.
    return spec.user or f"{os.geteuid()}:{os.getegid()}"


def _environment(spec: ContainerSpec) -> dict[str, str]:
    """The spec's variables, and those that make a program see its limits."""
    # nproc still shows every CPU inside.
    own = {"OMP_NUM_THREADS": str(max(1, int(spec.cpus)))}
    if not spec.gpu_uuids:
        own["NVIDIA_VISIBLE_DEVICES"] = "void"
    return own | dict(spec.env)


def _address(found: Mapping[str, Any], network: str) -> str:
    joined = found.get("NetworkSettings", {}).get("Networks") or {}
    return str(joined[network]["IPAddress"]) if network in joined else ""


def _gpu_request(spec: ContainerSpec) -> list[DeviceRequest] | None:
    if not spec.gpu_uuids:
        return None
    return [DeviceRequest(device_ids=list(spec.gpu_uuids), capabilities=[["gpu"]])]


def _moment(text: str) -> datetime | None:
    """The engine's time, which has nine digits; None for its zero."""
    match = _TIME.fullmatch(text)
    if match is None or text.startswith("0001-"):
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(f"{match[1]}.{(match[2] or '0'):0<6}{zone}")


def _seconds(stamp: str) -> float:
    """*stamp* as the engine's `since`: a little early, for a float has no nanoseconds."""
    moment = _moment(stamp)
    return 0.0 if moment is None else moment.timestamp() - 0.001
