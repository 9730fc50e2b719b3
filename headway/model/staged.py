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
