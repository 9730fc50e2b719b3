"""What is new in a run that is asked about: who predicts best differs by it. Cheap to import."""

import enum
import hashlib
from collections.abc import Collection, Iterable, Mapping

from headway.estimate.features import Configuration

TOURNAMENT = "tournament"
"""The ledger's setting in which the last night's tournament is."""


class Kind(enum.StrEnum):
    """The first of these that holds for a run, against the traces that were learnt from."""

    RECIPE = "new recipe"
    GPU_TYPE = "new GPU type"
    BATCH = "new batch or number of GPUs"
    OPTION = "new option"
    KNOWN = "known recipe"
    """All of it was seen: the same program, options and amount of work on such GPUs."""


_ADDED = {
    Kind.RECIPE: ("recipe", "network"),
    Kind.GPU_TYPE: ("gpu_type", "precision"),
    Kind.BATCH: ("gpus", "nodes", "batch_size"),
    Kind.OPTION: ("epochs", "dataset_samples", "dataset_bytes", "data_threads", "cpus", "settings"),
}
"""What is looked at besides; where no trace has the same so far, that is the kind."""


def seen_of(configurations: Iterable[Configuration]) -> frozenset[int]:
    """What `kind_of` has to know of traces: 64 bits for each value of each kind."""
    return frozenset(key for c in configurations for _, key in _keys(c))


def kind_of(configuration: Configuration, seen: Collection[int]) -> Kind:
    """What is new in *configuration*, next to those of which *seen* was made."""
    return next((kind for kind, key in _keys(configuration) if key not in seen), Kind.KNOWN)


def new_in(configuration: Configuration, kind: Kind) -> int:
    """What is new in a run of *kind*: the same number for all that are new in the same way."""
    keys = dict(_keys(configuration))
    return keys.get(kind, keys[Kind.OPTION])


def _keys(configuration: Configuration) -> Iterable[tuple[Kind, int]]:
    digest = hashlib.blake2b(digest_size=8)
    for kind, names in _ADDED.items():
        plain = [_plain(getattr(configuration, name)) for name in names]
        digest.update(repr([kind.value, plain]).encode())
        yield kind, int.from_bytes(digest.copy().digest(), "big")


def _plain(value: object) -> object:
    """The same for 3 epochs, as a job says it, and for 3.0, as a trace does."""
    if isinstance(value, Mapping):
        return sorted((name, _plain(each)) for name, each in value.items())
    return float(value) if isinstance(value, int) else value
