"""What is checked before a container is created. Nothing here trusts the job."""

import re
from pathlib import Path, PurePosixPath

from headway.model.container_policy import ContainerPolicy, GangNetwork, NetworkMode
from headway.model.image import GIVE_IMAGE, is_image
from headway.runtime.errors import PolicyViolation
from headway.runtime.port import BindMount, ContainerSpec
from headway.units import format_size

LOG_TARGET = "/headway/log"
"""Where the container finds its log file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,127}")
_USER = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Mounting over these would change what the engine's limits rest on, or show the host.
_FORBIDDEN_TARGETS = ("/proc", "/sys", "/dev", "/headway", "/etc", "/bin", "/sbin", "/lib")
_FORBIDDEN_SOURCES = ("/proc", "/sys", "/dev", "/run/docker.sock", "/var/run/docker.sock")


def check_spec(spec: ContainerSpec, policy: ContainerPolicy) -> None:
    """Raise `PolicyViolation` for what *policy* or the port forbids in *spec*.

    Pure: mount sources are taken as they are written; `real_source` follows
    their links.
    """
    _check_shape(spec)
    check_image(spec.image, policy)
    for what, asked, most in (
        ("shared memory", spec.shm_bytes, policy.max_shm_bytes),
        ("log limit", spec.log_limit_bytes, policy.max_log_bytes),
    ):
        if asked > most:
            raise PolicyViolation(what, format_size(asked), f"give at most {format_size(most)}")
    if not 1 <= spec.pids <= policy.max_pids:
        raise PolicyViolation("processes", spec.pids, f"give 1 to {policy.max_pids}")
    _check_network(spec.network, policy)
    for mount in spec.mounts:
        _check_target(mount)


def _check_network(network: NetworkMode | GangNetwork | None, policy: ContainerPolicy) -> None:
    # A team's own rules may give it less than the site has.
    narrower = {NetworkMode.NONE, NetworkMode.BRIDGE}
    allowed: set[object] = {policy.network, None, NetworkMode.NONE}
    allowed |= narrower if policy.network is not NetworkMode.NONE else set()
    allowed |= {GangNetwork(name) for name in policy.gang_networks}
    if policy.gang_network == NetworkMode.HOST:
        allowed.add(NetworkMode.HOST)
    if network not in allowed:
        name = network.name if isinstance(network, GangNetwork) else network
        setting = "change network or gang_network of the block headway-container-policy/site"
        raise PolicyViolation("network", str(name), setting)


def check_image(image: str, policy: ContainerPolicy) -> None:
    """Raise `PolicyViolation` for what is no name of an image, or none that *policy* allows."""
    if not is_image(image):
        raise PolicyViolation("image", image, GIVE_IMAGE)
    if not policy.allows_image(image):
        raise PolicyViolation("image", image, f"give one of {', '.join(policy.images)}")


def _check_shape(spec: ContainerSpec) -> None:
    """The engine would accept some of these and mean something else (0 is unlimited)."""
    is_user = not spec.user or _USER.fullmatch(spec.user)
    checks = (
        ("container name", spec.name, _NAME.fullmatch(spec.name), "give letters, digits and ._-"),
        ("command", spec.command, bool(spec.command), "give a program"),
        ("host memory", spec.host_memory_bytes, spec.host_memory_bytes > 0, "give more than 0 B"),
        ("cpus", spec.cpus, spec.cpus > 0, "give more than 0"),
        ("log limit", spec.log_limit_bytes, spec.log_limit_bytes > 0, "give more than 0 B"),
        ("user", spec.user, is_user, "give uid:gid, such as 1000:1000"),
    )
    for what, value, good, allowed in checks:
        if not good:
            raise PolicyViolation(what, value, allowed)
    for key, value in spec.env.items():
        if _ENV_KEY.fullmatch(key) is None or "\0" in value or "\n" in value:
            # The value may be a secret and stays out of the message.
            raise PolicyViolation("environment", key, "give keys A-Z, 0-9, _ and one-line values")


def _check_target(mount: BindMount) -> None:
    target = PurePosixPath(mount.target)
    allowed = "give an absolute path of its own, such as /data"
    if not target.is_absolute() or ".." in target.parts or target == PurePosixPath("/"):
        raise PolicyViolation("mount target", mount.target, allowed)
    if any(target.is_relative_to(path) for path in _FORBIDDEN_TARGETS):
        raise PolicyViolation("mount target", mount.target, allowed)


def real_source(mount: BindMount, roots: tuple[Path, ...]) -> Path:
    """The mount's source with every link followed, if it lies below one of *roots*.

    The engine follows links on the host, so the check must too.

    Raises:
        PolicyViolation: It does not exist, or lies elsewhere.
    """
    try:
        source = mount.source.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise PolicyViolation(
            "mount source", str(mount.source), f"give a directory that exists ({error})"
        ) from error
    real_roots = [root.resolve() for root in roots]
    inside = any(source.is_relative_to(root) for root in real_roots)
    if not inside or any(source.is_relative_to(path) for path in _FORBIDDEN_SOURCES):
        places = ", ".join(str(root) for root in roots) or "nothing (no mount roots are set)"
        raise PolicyViolation("mount source", str(mount.source), f"allowed is {places}")
    return source


def with_real_roots(policy: ContainerPolicy) -> ContainerPolicy:
    """*policy* with its mount roots and volumes as they are without links.

    So what is compared is what is read.
    """
    teams = {
        name: rules.model_copy(update={"mount_roots": _real(rules.mount_roots)})
        for name, rules in policy.teams.items()
    }
    volumes = {
        name: volume.model_copy(update={"path": volume.path.resolve()})
        for name, volume in policy.volumes.items()
    }
    real = {"mount_roots": _real(policy.mount_roots), "teams": teams, "volumes": volumes}
    return policy.model_copy(update=real)


def _real(roots: tuple[Path, ...] | None) -> tuple[Path, ...] | None:
    return None if roots is None else tuple(root.resolve() for root in roots)
