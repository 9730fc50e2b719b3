"""A data set that lies in a node's cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StagedSet:
    """One staged data set, as the ledger knows it."""

    key: str
    """Names the data and its version; see `headway.staging.source.Source.key`."""
    uri: str
    size_bytes: int
    sha256: str
    run_ids: tuple[str, ...] = ()
    """Runs that use it. While there is one it is not evicted."""


@dataclass(frozen=True, slots=True)
class HeldSet:
    """A data set in the cache of a node whose worker hands it to other nodes."""

    node: str
    key: str
    sha256: str
    """As `headway.staging.manifest.digest` says; by the ledger, not by the node's word."""


@dataclass(frozen=True, slots=True)
class Staging:
    """How a data set came to the node of an attempt."""

    attempt: int
    name: str
    """In the job; empty for the one that has none."""
    node: str
    uri: str
    size_bytes: int
    took_s: float
    was_there: bool
    """In the node's cache: nothing was copied."""
    listing: str = ""
    """Names the files of all of which the node has a part; empty where it has all."""
    from_nodes: str = ""
    """Other nodes from whose caches some of it was copied, such as ``b, c``."""
    peer_bytes: int = 0
    """How much of it that was; the rest came from its source."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What a node's cache has, and how often it spared a copy."""

    sets: int = 0
    size_bytes: int = 0
    """Of all sets in it now."""
    hits: int = 0
    hit_bytes: int = 0
    copies: int = 0
    copied_bytes: int = 0
    peer_bytes: int = 0
    """Of those that were copied, what came from other nodes and not from the source."""
