"""Configurations as pandas frames and back: what scikit-learn's tools and people's own work on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

import pandas as pd
from numpy.typing import NDArray

from headway.estimate.features import Configuration

_TYPES = {
    name: (get_args(kind) or (kind,))[0]
    for name, kind in get_type_hints(Configuration).items()
    if name != "settings"
}
KNOWN_BEFORE = tuple(_TYPES)
"""Columns that are known before a run starts, besides options of its command, which begin so: --"""
TEXTS = tuple(name for name, kind in _TYPES.items() if kind is str)
_AS_WRITTEN = frozenset({"recipe", "team"})
"""All other texts are read in lower case."""
MOST_SETTINGS = 256


def frame_of(configurations: Sequence[Configuration]) -> pd.DataFrame:
    """One row each, in the columns of `KNOWN_BEFORE` and of their settings; NaN is unknown.

    Of more than `MOST_SETTINGS` settings those that most rows have.
    """
    names = Counter(name for each in configurations for name in each.settings)
    common, rows = {name for name, _ in names.most_common(MOST_SETTINGS)}, []
    for each in configurations:
        row = asdict(each)
        own = row.pop("settings")
        rows.append({**{name: own[name] for name in own if name in common}, **row})
    found = pd.DataFrame.from_records(rows, columns=None if rows else list(KNOWN_BEFORE))
    numbers = found.columns.difference([*TEXTS, "gpu_is_guessed"])
    return found.astype(dict.fromkeys(numbers, "float64"))


def configurations_of(columns: pd.DataFrame | Mapping[str, NDArray[Any]]) -> list[Configuration]:
    """What `frame_of` was given; columns that it does not know are settings, which are numbers."""
    found = []
    for row in pd.DataFrame(dict(columns)).astype(object).to_dict("records"):
        told = {str(name): value for name, value in row.items() if not pd.isna(value)}
        known: dict[str, Any] = {n: _TYPES[n](value) for n, value in told.items() if n in _TYPES}
        known |= {n: known[n].lower() for n in TEXTS if n in known and n not in _AS_WRITTEN}
        known["gpus"] = max(known.get("gpus", 1), 1)
        known["recipe"] = known.get("recipe") or known.get("network") or "unnamed"
        own = {name: float(value) for name, value in told.items() if name not in _TYPES}
        found.append(Configuration(**known, settings=own))
    return found
