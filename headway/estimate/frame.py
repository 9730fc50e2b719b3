"""Configurations as pandas frames and back: what scikit-learn's tools and people's own work on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headway.estimate.features import Configuration

TEXTS = ("network", "gpu_type", "precision", "framework", "recipe", "team")
_OWN_SPELLING = ("recipe", "team")
COUNTS = (
    *("gpus", "nodes", "batch_size", "data_threads", "dataset_bytes", "dataset_samples"),
    "iterations",
)
KNOWN_BEFORE = tuple(f.name for f in fields(Configuration) if f.name != "settings")
"""Columns that are known before a run starts, besides options of its command, which begin so: --"""


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
    known: dict[str, list[Any]] = {}
    settings: dict[str, list[float | None]] = {}
    for column, values in columns.items():
        name = str(column)
        array = np.asarray(values, dtype=object)
        told = [None if missing else v for v, missing in zip(array, pd.isna(array), strict=True)]
        if name in TEXTS:
            spelt = str if name in _OWN_SPELLING else lambda v: str(v).lower()
            known[name] = [None if v is None else spelt(v) for v in told]
        elif name in COUNTS:
            known[name] = [None if v is None else int(v) for v in told]
        elif name == "gpu_is_guessed":
            known[name] = [bool(v) for v in told]
        elif name in KNOWN_BEFORE:
            known[name] = [None if v is None else float(v) for v in told]
        else:
            settings[name] = [None if v is None else float(v) for v in told]
    count = len(next(iter((known or settings).values()), ()))
    found = []
    for row in range(count):
        given = {name: v for name, each in known.items() if (v := each[row]) is not None}
        given["gpus"] = max(given.get("gpus", 1), 1)
        given["recipe"] = given.get("recipe") or given.get("network") or "unnamed"
        own = {name: v for name, each in settings.items() if (v := each[row]) is not None}
        found.append(Configuration(**given, settings=own))
    return found
