"""What containers may do on this site: set by the operator, checked before every create."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from headway.errors import InvalidInput
from headway.model.image import ImageReference
from headway.model.number_range import NumberRange, WrittenRange
from headway.units import GIB

OWN_NETWORK = "headway"
"""The engine's network that headway makes for containers."""


class NetworkMode(enum.StrEnum):
    """What a container may reach."""

    BRIDGE = "bridge"
    """The outside, and neither the node nor another container; reached only by its published
    ports. Nothing, where headway may not set the packet rules that this takes."""
    UNGUARDED = "unguarded"
    """As `BRIDGE`, also where those rules cannot be set: then it reaches the node's services."""
    HOST = "host"
    """The node's own: everything that the node reaches."""
    NONE = "none"
    """Nothing; published ports do not work either."""


@dataclass(frozen=True, slots=True)
class GangNetwork:
    """A network of the engine that the operator named for jobs over several nodes."""

    name: str


class ApiAccess(enum.StrEnum):
    """Who may give the site orders through Prefect's API."""

    OPEN = "open"
    """Whoever reaches it."""
    PASSWORD = "password"  # noqa: S105 - a word, no secret
    """Who knows the auth string."""


_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NO_MEETING_PLACE = frozenset({OWN_NETWORK, "bridge", "default", "none"})


class RootFilesystem(enum.StrEnum):
    """May the program write outside its mounts?"""

    WRITABLE = "writable"
    """Into a layer that is thrown away with the container."""
    READ_ONLY = "read_only"
    """Only to its mounts and a small /tmp that counts as its memory."""


LEAST_UID = 1000
"""Smaller ones are the system's own."""
MOST_UID = 2**31 - 2
"""Container engines take no larger one."""


class TeamRules(BaseModel):
    """What differs for one team."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uids: WrittenRange | None = None
    """Of its programs and files; None for the first range that is free."""

    @field_validator("uids")
    @classmethod
    def _are_nobodys(cls, uids: NumberRange | None) -> NumberRange | None:
        return uids if uids is None else _uids(uids)


def _uids(uids: NumberRange) -> NumberRange:
    if not NumberRange(LEAST_UID, MOST_UID).holds(uids):
        raise ValueError(
            f"give uids of {LEAST_UID} to {MOST_UID}, not {uids}: others are the system's"
        )
    return uids


class ContainerPolicy(BaseModel):
    """The site's rules for containers. The default lets any image run, confined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: tuple[str, ...] = Field(
        (),
        title="Allowed images",
        description="Patterns such as python:3.* or registry.example.org/ml/*; each * stays within "
        "one part of a name; empty for any image.",
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
        description="What a container reaches. bridge: the outside alone, or nothing where "
        "headway may not set packet rules; unguarded: the outside in any case; host: all that the "
        "node reaches, if the API has an auth string; none.",
    )
    gang_network: str = Field(
        "",
        title="Network of gangs",
        description="Network that every node's engine knows (such as an overlay), on which the "
        "parts of a job over several nodes meet; host for the nodes' own, if the API has an auth "
        "string. Empty: such jobs are refused, unless Network is host.",
    )
    root_filesystem: RootFilesystem = Field(RootFilesystem.WRITABLE, title="Root file system")
    secret_prefixes: tuple[str, ...] = Field(
        ("job-",),
        title="Secrets",
        description="Beginnings of the names of the Prefect Secret blocks that jobs may use; "
        "none: no job gets any.",
    )

    uids: WrittenRange = Field(
        NumberRange(2_100_000_000, 2_146_999_999),
        title="Uids",
        description="Where a site of root takes the uids of teams from, a thousand for each.",
    )
    teams: Mapping[str, TeamRules] = Field(
        {}, title="Teams", description="What differs for a team, by its name."
    )

    @field_validator("uids")
    @classmethod
    def _are_nobodys(cls, uids: NumberRange) -> NumberRange:
        return _uids(uids)

    @field_validator("gang_network")
    @classmethod
    def _is_a_network(cls, name: str) -> str:
        if name and _NETWORK.fullmatch(name) is None:
            raise ValueError("give the name of a network, such as gangs")
        if name in _NO_MEETING_PLACE:
            raise ValueError(f"on the network {name} containers do not find each other")
        return name

    def allows_image(self, image: str) -> bool:
        """Does *image* match one of the patterns? A missing tag counts as ``:latest``."""
        if not self.images:
            return True
        try:
            reference = ImageReference.parse(image)
        except ValueError:
            return False
        return any(reference.matches(pattern) for pattern in self.images)

    def refused_secret(self, secrets: Mapping[str, str]) -> InvalidInput | None:
        """What is wrong with a job's *secrets* (variable → block); None when it may use them."""
        for variable, block in secrets.items():
            # An empty prefix would be a hole the size of the site, and stands for nothing here.
            if not any(prefix and block.startswith(prefix) for prefix in self.secret_prefixes):
                names = " or ".join(f"{prefix}…" for prefix in self.secret_prefixes if prefix)
                allowed = f"name a block {names}" if names else "leave it out"
                return InvalidInput(
                    f"secrets.{variable}",
                    block,
                    f"jobs may not use this block on this site; {allowed}",
                )
        return None
