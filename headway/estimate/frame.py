"""Configurations as pandas frames and back: what scikit-learn's tools and people's own work on."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from headway.estimate.features import Configuration

_LOWER = ("network", "gpu_type", "beside", "precision", "framework")
TEXTS = (*_LOWER, "recipe", "team")
_COUNTS = (
    *("gpus", "nodes", "batch_size", "data_threads", "dataset_bytes", "dataset_samples"),
    *("iterations", "beside_batch_size"),
)
_AS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(TEXTS, str),
    **dict.fromkeys(_LOWER, lambda value: str(value).lower()),
    **dict.fromkeys(_COUNTS, int),
    "gpu_is_guessed": bool,
}
"""How values of columns are read; all others are float."""
KNOWN_BEFORE = tuple(f.name for f in fields(Configuration) if f.name != "settings")
"""Columns that are known before a run starts, besides options of its command, which begin so: --"""
_KNOWN = frozenset(KNOWN_BEFORE)


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
        known: dict[str, Any] = {
            name: _AS.get(name, float)(value) for name, value in told.items() if name in _KNOWN
        }
        known["gpus"] = max(known.get("gpus", 1), 1)
        known["recipe"] = known.get("recipe") or known.get("network") or "unnamed"
        own = {name: float(value) for name, value in told.items() if name not in _KNOWN}
        found.append(Configuration(**known, settings=own))
    return found
