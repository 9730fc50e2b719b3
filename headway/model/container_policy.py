"""What containers may do on this site: set by the operator, checked before every create."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from headway.errors import InvalidInput
from headway.model.image import GIVE_IMAGE, ImageReference, is_image
from headway.model.job_rules import read_environment
from headway.model.number_range import NumberRange, PortRange, WrittenRange
from headway.model.object_place import checked_rules
from headway.model.outside import Outside
from headway.model.volume import Volume, named_volumes
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


class CpuRule(enum.StrEnum):
    """What the CPUs of a lease are to its program."""

    GUARANTEE = "guarantee"
    """It gets at least these; those that are idle go to whoever can use them."""
    CEILING = "ceiling"
    """It gets no more, also where they are idle."""


LEAST_UID = 1000
"""Smaller ones are the system's own."""
MOST_UID = 2**31 - 2
"""Container engines take no larger one."""
UIDS_OF_TEAMS = NumberRange(2_100_000_000, 2_146_999_999)
"""Where neither systemd nor directories of users nor useradd's /etc/subuid give any."""


def _network_name(name: str) -> str:
    if name and _NETWORK.fullmatch(name) is None:
        raise ValueError("give the name of a network, such as gangs")
    if name in _NO_MEETING_PLACE:
        raise ValueError(f"on the network {name} containers do not find each other")
    return name


def _uids(uids: NumberRange) -> NumberRange:
    if not NumberRange(LEAST_UID, MOST_UID).holds(uids):
        raise ValueError(
            f"give uids of {LEAST_UID} to {MOST_UID}, not {uids}: others are the system's"
        )
    return uids


Uids = Annotated[WrittenRange, AfterValidator(_uids)]
NetworkName = Annotated[str, AfterValidator(_network_name)]


class TeamRules(BaseModel):
    """What differs for one team."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uids: Uids | None = None
    """Of its programs and files; None for the first range that is free."""
    ports: PortRange | None = None
    """Of the host, for its jobs alone; None for those that are no other team's."""
    images: tuple[str, ...] | None = None
    mount_roots: tuple[Path, ...] | None = None
    data_hosts: tuple[str, ...] | None = None
    data_stores: Annotated[Mapping[str, str], AfterValidator(checked_rules)] = {}
    """The team's alone, beside the site's of the same name."""
    network: NetworkMode | None = None
    gang_network: NetworkName | None = None
    """As the site's of the same name; None for the site's."""
    secret_prefixes: tuple[str, ...] | None = None
    """The same; Secret blocks whose names begin so are no other team's."""


BASE_IMAGES = {f"3.{minor}": f"python:3.{minor}-slim" for minor in (11, 12, 13)}
"""Where the operator names none: Docker's official ones, which may be disallowed as any image."""
_PYTHON = re.compile(r"3\.[0-9]{1,2}")


def _base_images(images: Mapping[str, str]) -> Mapping[str, str]:
    for python, image in images.items():
        if _PYTHON.fullmatch(python) is None:
            raise ValueError(f"name a Python such as 3.11, not {python[:100]!r}")
        if not is_image(image):
            raise ValueError(f"{GIVE_IMAGE} for Python {python}, not {image[:300]!r}")
    return images


class ContainerPolicy(BaseModel):
    """The site's rules for containers. The default lets any image run, confined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_gone(cls, values: Any) -> Any:
        """Blocks of before may say in which image nodes were measured."""
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if name != "probe_image"}

    images: tuple[str, ...] = ()
    """Patterns such as python:3.* or registry.example.org/ml/*; each * stays within one part of a
    name; empty for any image."""
    base_images: Annotated[Mapping[str, str], AfterValidator(_base_images)] = BASE_IMAGES
    """For each Python that jobs may name in the place of an image, the image."""
    environment: Annotated[Mapping[str, str], AfterValidator(read_environment)] = {}
    """Variables of every container whose job does not set them: HTTPS_PROXY, UV_DEFAULT_INDEX,
    SSL_CERT_FILE and the like. Members see them."""
    outside: Outside = Outside()
    """How containers reach what lies outside: index, more_indexes, proxy, no_proxy, certificates (a
    file on every node), and contact, whom members ask where it fails."""
    mount_roots: tuple[Path, ...] = ()
    """Directories below which a job's data set may lie; empty for all that its user may read, but
    for the system's own and keys."""
    data_hosts: tuple[str, ...] = ()
    """Networks, addresses and names of web servers that are not public and may hold data sets, such
    as 10.1.0.0/16."""
    data_stores: Annotated[Mapping[str, str], AfterValidator(checked_rules)] = {}
    """For an address such as s3://bucket/sets the Prefect Secret block with what data there is read
    with, or anonymous. Other addresses are read without credentials."""
    max_pids: int = Field(4096, ge=16)
    """In one container."""
    max_shm_bytes: int = Field(64 * GIB, ge=0)
    """Most that /dev/shm may be given."""
    max_log_bytes: int = Field(4 * GIB, ge=1)
    """Most that is kept of one attempt's log."""
    network: NetworkMode = NetworkMode.BRIDGE
    """What a container reaches. bridge: the outside alone, or nothing where headway may not set
    packet rules; unguarded: the outside in any case; host: all that the node reaches, if the API
    has an auth string; none."""
    gang_network: NetworkName = ""
    """Network that every node's engine knows (such as an overlay), on which the parts of a job over
    several nodes meet; host for the nodes' own, if the API has an auth string. Empty: such jobs are
    refused, unless Network is host."""
    root_filesystem: RootFilesystem = RootFilesystem.WRITABLE
    cpus: CpuRule = CpuRule.GUARANTEE
    """guarantee: a program gets at least the CPUs of its job, and idle ones besides; ceiling: never
    more than those of its job."""
    secret_prefixes: tuple[str, ...] = ("job-",)
    """Beginnings of the names of the Prefect Secret blocks that jobs may use; none: no job gets
    any."""

    uids: Uids | None = None
    """Where a site of root takes the uids of teams from, a thousand for each; 2100000000 to
    2146999999, or within the ceiling, when not set."""
    volumes: Annotated[Mapping[str, Volume], AfterValidator(named_volumes)] = {}
    """Folders of the nodes that jobs may ask for, by name."""
    teams: Mapping[str, TeamRules] = {}
    """What differs for a team, by its name."""

    @property
    def gang_networks(self) -> tuple[str, ...]:
        """Networks of the engine on which gangs meet, the site's and those of teams."""
        named = (self.gang_network, *(team.gang_network for team in self.teams.values()))
        return tuple(sorted({name for name in named if name and name != NetworkMode.HOST}))

    @property
    def port_ranges(self) -> dict[str, NumberRange]:
        """Ports of the teams that have their own."""
        return {team: it.ports for team, it in self.teams.items() if it.ports is not None}

    def allows_image(self, image: str) -> bool:
        """Does *image* match one of the patterns? A missing tag counts as ``:latest``."""
        if not self.images:
            return True
        try:
            reference = ImageReference.parse(image)
        except ValueError:
            return False
        return any(reference.matches(pattern) for pattern in self.images)

    def refused_secret(self, secrets: Mapping[str, str], team: str = "") -> InvalidInput | None:
        """What is wrong with the *secrets* of a job of *team* (variable → block); None if nothing.

        What begins as another team's blocks do is that team's alone.
        """
        rules = [each for name, each in self.teams.items() if name != team]
        others = tuple(prefix for each in rules for prefix in each.secret_prefixes or () if prefix)
        own = self.teams[team].secret_prefixes or () if team in self.teams else ()
        for variable, block in secrets.items():
            if block.startswith(others) and not block.startswith(tuple(filter(None, own))):
                allowed = "it is another team's; name a block that your team may use"
                return InvalidInput(f"secrets.{variable}", block, allowed)
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
