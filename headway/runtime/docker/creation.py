"""What of a container's spec reaches the engine: a closed list of settings."""

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig, Mount

from headway.cgroups import cpu_shares
from headway.model.container_policy import (
    ContainerPolicy,
    CpuRule,
    GangNetwork,
    NetworkMode,
    RootFilesystem,
)
from headway.model.image import ImageReference
from headway.runtime import logfile
from headway.runtime.docker.engine import Engine, asking, ordering
from headway.runtime.docker.images import have_image
from headway.runtime.errors import ContainerExists, PolicyViolation
from headway.runtime.port import ContainerSpec
from headway.runtime.rules import LOG_TARGET, real_source
from headway.runtime.surroundings import OWN_TMP, surroundings, with_user
from headway.units import MIB

SITE, RUN, ATTEMPT = "headway.site", "headway.run", "headway.attempt"
LOG, LOG_LIMIT = "headway.log", "headway.log_limit"
"""Labels that a container is found and read by."""
_SHELL, _ACCOUNTS = "/bin/sh", "/etc/passwd"
# Appended by the program itself: nothing between it and the file can lose a line.
_LOGGED = (_SHELL, "-c", f'exec "$@" >>{LOG_TARGET} 2>&1', "headway")


@dataclass(frozen=True, slots=True)
class Creation:
    """Creates one container.

    Attributes:
        engine: Where.
        spec: What is asked for, checked against the policy.
        policy: What containers may do.
        site: Labels the container.
        network: The engine's network that it joins.
        parent_group: The control group that its own is made in; None for the engine's choice.
    """

    engine: Engine
    spec: ContainerSpec
    policy: ContainerPolicy
    site: str
    network: str
    parent_group: str | None

    @property
    def _read_only(self) -> bool:
        return self.policy.root_filesystem is RootFilesystem.READ_ONLY

    @property
    def _ids(self) -> tuple[int, int]:
        """Uid and gid of its program on the host."""
        # A uid alone would get group 0.
        uid, gid = (self.spec.user or f"{os.geteuid()}:{os.getegid()}").split(":")
        return int(uid), int(gid)

    @property
    def _user(self) -> str:
        """The same as the container has it; raises `PolicyViolation` where it can have no such."""
        remap = self.engine.remap
        uid, gid = self._ids if remap is None else remap.inside(*self._ids)
        return f"{uid}:{gid}"

    def run(self) -> None:
        """Create, do not start. Raises `ContainerExists`, `ImageMissing`, `PolicyViolation`."""
        spec = self.spec
        mounts = [
            Mount(
                mount.target,
                str(real_source(mount, self.policy.mount_roots)),
                type="bind",
                read_only=mount.read_only,
            )
            for mount in spec.mounts
        ]
        uid, gid = self._ids
        os.close(logfile.open_log(spec.log_path, (uid, gid) if os.geteuid() == 0 else None))
        log = Mount(LOG_TARGET, str(spec.log_path.resolve()), type="bind")
        image = have_image(self.engine, ImageReference.parse(spec.image))
        said = dict(each.partition("=")[::2] for each in image["Config"].get("Env") or ())
        if self._read_only:
            mounts += self._over_volumes(image["Config"].get("Volumes") or {})
        container = self._create(image["Id"], said, [*mounts, log])
        if not self._has_shell(container):
            with ordering(f"remove container {spec.name}, which has no shell"):
                self.engine.api.remove_container(container, v=True)
            allowed = f"give an image that has {_SHELL}, by which the program's output is kept"
            raise PolicyViolation("image", spec.image, allowed)
        if not self._read_only:
            self._name_user(container)

    def _over_volumes(self, declared: Mapping[str, object]) -> list[Mount]:
        """What lies over the volumes that the image declares, where the root is read-only.

        Else they would be a writable place on the node's disk; as it is they count as memory.
        """
        ours = {PurePosixPath("/tmp"), *(PurePosixPath(each.target) for each in self.spec.mounts)}
        return [
            Mount(target, None, type="tmpfs")
            for target in sorted(declared)
            if PurePosixPath(target) not in ours
        ]

    def _name_user(self, container: str) -> None:
        """Give its user an entry in the container's list of accounts, before it starts.

        An image that has a link in that place keeps it: where it leads to is not known here.
        """
        api, (uid, gid) = self.engine.api, map(int, self._user.split(":"))
        passwd = ""
        with ordering(f"name the user of container {self.spec.name}"):
            with suppress(NotFound):
                pieces, about = api.get_archive(container, _ACCOUNTS)
                if about["linkTarget"] or about["size"] > MIB:
                    return
                with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
                    file = tar.extractfile(tar.next() or tarfile.TarInfo())
                    passwd = "" if file is None else file.read().decode(errors="replace")
            named = with_user(passwd, uid, gid, OWN_TMP).encode()
            given = io.BytesIO()
            with tarfile.open(fileobj=given, mode="w") as tar:
                info = tarfile.TarInfo(_ACCOUNTS.lstrip("/"))
                info.size, info.mode = len(named), 0o644
                tar.addfile(info, io.BytesIO(named))
            api.put_archive(container, "/", given.getvalue())

    def _has_shell(self, container: str) -> bool:
        """Is there a shell in the container's own root? 2 ms, without starting it."""
        api = self.engine.api
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/archive"
        with asking("look into a container"):
            answer = api.head(url, params={"path": _SHELL}, timeout=self.engine.timeout_s)
        return bool(answer.status_code == 200)

    def _create(
        self,
        image_id: str,
        said: Mapping[str, str],
        mounts: Sequence[Mount],
        *,
        limited: bool = True,
    ) -> str:
        """Create, *limited* in the container's own disk where the engine takes that; the id."""
        limited &= self.spec.disk_bytes is not None and _may_limit_layers(self.engine.info)
        spec, api = self.spec, self.engine.api
        published = {} if self.network == NetworkMode.HOST else spec.ports
        gpus = DeviceRequest(device_ids=list(spec.gpu_uuids), capabilities=[["gpu"]])
        host_config = api.create_host_config(
            mounts=list(mounts),
            mem_limit=spec.host_memory_bytes,
            memswap_limit=spec.host_memory_bytes,
            nano_cpus=int(spec.cpus * 1e9) if self.policy.cpus is CpuRule.CEILING else None,
            cpu_shares=cpu_shares(spec.cpus),
            cpuset_cpus=cpuset(spec, self.engine.info),
            pids_limit=spec.pids,
            shm_size=spec.shm_bytes,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            init=True,
            read_only=self._read_only,
            storage_opt={"size": str(spec.disk_bytes)} if limited else None,
            tmpfs={"/tmp": "rw,nosuid,nodev,exec"} if self._read_only else None,
            network_mode=self.network,
            port_bindings={own: ("127.0.0.1", port) for own, port in published.items()},
            device_requests=[gpus] if spec.gpu_uuids else None,
            cgroup_parent=self.parent_group,
            log_config=LogConfig(
                type=LogConfig.types.JSON,
                config={"max-size": str(MIB), "max-file": "2"},
            ),
        )
        with ordering(f"create container {spec.name}"):
            try:
                created = api.create_container(
                    image_id,  # what its name means now, whatever it will
                    [*spec.wrapper, *spec.command],
                    entrypoint=list(_LOGGED),
                    name=spec.name,
                    user=self._user,
                    working_dir=spec.working_dir or None,
                    environment=_environment(spec, said),
                    stop_signal="SIGTERM",
                    ports=list(published),
                    labels=self._labels(),
                    host_config=host_config,
                    healthcheck={"test": ["NONE"]},
                    network_disabled=self.network == NetworkMode.NONE,
                    # A gang's head is told its own name as the place where all meet.
                    hostname=spec.name if isinstance(spec.network, GangNetwork) else None,
                )
            except APIError as error:
                if error.status_code == 409:
                    raise ContainerExists(spec.name) from error
                if not limited:
                    raise
                # Its file system was mounted without project quotas.
                return self._create(image_id, said, mounts, limited=False)
        return str(created["Id"])

    def _labels(self) -> dict[str, str]:
        spec = self.spec
        return {
            SITE: self.site,
            RUN: spec.run_id,
            ATTEMPT: str(spec.attempt),
            LOG: str(spec.log_path),
            LOG_LIMIT: str(spec.log_limit_bytes),
            "headway.image": str(ImageReference.parse(spec.image)),
        }


def _may_limit_layers(info: Mapping[str, Any]) -> bool:
    """May an engine of this kind be able to limit a container's own disk? Only an attempt tells."""
    status = dict(pair for pair in info.get("DriverStatus") or () if len(pair) == 2)
    on_xfs = status.get("Backing Filesystem") == "xfs"
    return info.get("Driver") in {"btrfs", "zfs"} or (info.get("Driver") == "overlay2" and on_xfs)


def cpuset(spec: ContainerSpec, info: Mapping[str, Any]) -> str | None:
    """The CPUs to which the engine binds the container; None for none.

    Not its memory: first use takes it from near by, and a binding would have the kernel kill the
    program where other NUMA nodes have some left.
    """
    # An engine that has other CPUs than this process would refuse the container.
    if not info.get("CPUSet") or info.get("NCPU") != len(os.sched_getaffinity(0)):
        return None
    return ",".join(map(str, sorted(spec.near_cpus))) or None


def _environment(spec: ContainerSpec, said: Mapping[str, str]) -> dict[str, str]:
    """The spec's variables, and those that make a program see its limits and surroundings."""
    # nproc still shows every CPU inside.
    own = surroundings(OWN_TMP, said) | {"OMP_NUM_THREADS": str(max(1, int(spec.cpus)))}
    if not spec.gpu_uuids:
        own["NVIDIA_VISIBLE_DEVICES"] = "void"
    return own | dict(spec.env)
