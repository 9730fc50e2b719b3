"""What containers may do on this site: set by the operator, checked before every create."""

import enum
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from headway.units import GIB


class NetworkMode(enum.StrEnum):
    """What a container may reach."""

    BRIDGE = "bridge"
    """The outside through the engine's own network; reached only by its published ports."""
    HOST = "host"
    """The node's own: everything that the node reaches. The ranks of a gang meet through it."""
    NONE = "none"
    """Nothing; published ports do not work either."""


class RootFilesystem(enum.StrEnum):
    """May the program write outside its mounts?"""

    WRITABLE = "writable"
    """Into a layer that is thrown away with the container."""
    READ_ONLY = "read_only"
    """Only to its mounts and a small /tmp that counts as its memory."""


class ContainerPolicy(BaseModel):
    """The site's rules for containers. The default lets any image run, confined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: tuple[str, ...] = Field(
        (),
        title="Allowed images",
        description="Patterns such as python:* or registry.example.org/ml/*; empty for any.",
    )
    mount_roots: tuple[Path, ...] = Field(
        (),
        title="Mount roots",
        description="Directories below which a job's data set may lie; empty for all that its "
        "user may read, but for the system's own and keys.",
    )
    data_hosts: tuple[str, ...] = Field(
        (),
        title="Data hosts",
        description="Networks, addresses and names of web servers that are not public and may "
        "hold data sets, such as 10.1.0.0/16.",
    )
    max_pids: int = Field(4096, ge=16, title="Processes", description="In one container.")
    max_shm_bytes: int = Field(
        64 * GIB, ge=0, title="Shared memory", description="Most that /dev/shm may be given."
    )
    max_log_bytes: int = Field(
        4 * GIB, ge=1, title="Log", description="Most that is kept of one attempt's log."
    )
    network: NetworkMode = Field(
        NetworkMode.BRIDGE,
        title="Network",
        description="What a container reaches. Jobs over several nodes get host, unless this is "
        "none: then they are refused.",
    )
    root_filesystem: RootFilesystem = Field(RootFilesystem.WRITABLE, title="Root file system")

    def allows_image(self, image: str) -> bool:
        """Does *image* match one of the patterns? A missing tag counts as ``:latest``."""
        if not self.images:
            return True
        names = {image}
        if ":" not in image.rsplit("/", 1)[-1] and "@" not in image:
            names.add(f"{image}:latest")
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.images)
