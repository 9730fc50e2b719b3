"""What the owner of a node lets its site do there, at most."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from headway.model.container_policy import ContainerPolicy
from headway.model.number_range import WrittenRange


class Ceiling(BaseModel):
    """Bounds that blocks may only narrow. A bound that is not given is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field("", exclude=True)
    """Where the bounds stand, for messages."""
    images: tuple[str, ...] | None = None
    """Patterns, as in the container policy; those of a registry are ``registry.org/*/*``."""
    mount_roots: tuple[Path, ...] | None = None
    """Directories below which data sets may lie."""
    data_hosts: tuple[str, ...] | None = None
    """Web servers that are not public and may be asked; none for an empty list."""
    networks: tuple[str, ...] | None = None
    """Kinds of network (bridge, none, unguarded, host), and names of networks of gangs."""
    devices: tuple[str, ...] | None = None
    """GPUs of this node that may be used, by uuid; none for an empty list."""
    uids: tuple[WrittenRange, ...] | None = None
    """Of programs."""

    @classmethod
    def of_site(cls, policy: ContainerPolicy) -> "Ceiling":
        """What the rules of a team may only narrow: the site's own."""
        return cls(
            source="the rules of the whole site",
            images=policy.images or None,
            mount_roots=policy.mount_roots or None,
            data_hosts=policy.data_hosts,
        )
