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
