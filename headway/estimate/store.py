"""Versions of estimators on disk: numbers and text only, checked before they are believed.

A version is one file, ``estimators-000012-<sha256>.npz``. Its name holds the
digest of its bytes, so that damage and tampering show; it holds arrays of
numbers and one JSON text, so that reading it runs no code; it is written
beside its place and renamed, so that it is never half there. ``CURRENT`` names
the version in use.
"""

import hashlib
import io
import json
import logging
import re
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from headway.durable import replace_file
from headway.errors import EstimatorDamaged
from headway.estimate.estimator import Estimators
from headway.estimate.physics import Tables, shipped
from headway.units import MIB

log = logging.getLogger(__name__)

FORMAT = 4
LARGEST_BYTES = 512 * MIB
"""A model file is a few MiB; what is larger was not written by headway."""
_NAME = re.compile(r"estimators-([0-9]{6,9})-([0-9a-f]{64})\.npz")
_CURRENT = "CURRENT"


def save(estimators: Estimators, directory: Path) -> Path:
    """Write *estimators* below *directory* and make it the version in use."""
    path = keep(estimators, directory)
    use(path, directory)
    return path


def keep(estimators: Estimators, directory: Path) -> Path:
    """Write *estimators* below *directory* without using it, as a challenger that lost is kept."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    document = {"format": FORMAT, "state": _pack(estimators, "", arrays)}
    buffer = io.BytesIO()
    arrays[""] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{f"a{k}": v for k, v in arrays.items()})
    data = buffer.getvalue()
    if len(data) > LARGEST_BYTES:  # nobody could read it
        raise EstimatorDamaged("what was learnt", f"{len(data)} bytes are too many to keep")
    digest = hashlib.sha256(data).hexdigest()
    path = directory / f"estimators-{estimators.version:06d}-{digest}.npz"
    replace_file(path, data)
    return path


def use(path: Path, directory: Path) -> None:
    """Make the version at *path* the one in use: promotion, and rolling back."""
    replace_file(directory / _CURRENT, f"{path.name}\n")


def read(path: Path, tables: Tables | None = None) -> Estimators:
    """The estimators in the file at *path*, with *tables* (the shipped ones when None).

    Raises:
        EstimatorDamaged: The file is missing, was changed, or is not of this format.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise EstimatorDamaged(str(path), "its name is not one that headway gives")
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise EstimatorDamaged(str(path), "it is larger than any that headway writes")
        data = path.read_bytes()
    except OSError as error:
        raise EstimatorDamaged(str(path), error.strerror or "it cannot be read") from error
    if hashlib.sha256(data).hexdigest() != match[2]:
        raise EstimatorDamaged(str(path), "its bytes do not match the sha256 in its name")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name[1:]: file[name] for name in file.files}
        document = json.loads(arrays[""].tobytes())
        state = _unpack(document["state"], arrays)
        if document["format"] != FORMAT:  # before 4, other fields
            raise EstimatorDamaged(str(path), f"format {document['format']}, not {FORMAT}")
        return replace(_readable().validate_python(state), tables=tables or shipped())
    except (ValueError, KeyError, TypeError, IndexError, zipfile.BadZipFile) as error:
        raise EstimatorDamaged(str(path), f"{type(error).__name__}: {error}") from error


def versions(directory: Path) -> list[Path]:
    """Files of all versions kept, oldest first."""
    if not directory.is_dir():
        return []
    found = [p for p in directory.iterdir() if _NAME.fullmatch(p.name)]
    return sorted(found, key=lambda p: (version_of(p), p.name))


def version_of(path: Path) -> int:
    """Number of the version in the file at *path*, from its name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise EstimatorDamaged(str(path), "its name is not one that headway gives")
    return int(match[1])


def current(directory: Path) -> Path | None:
    """File of the version in use; None when there is none."""
    try:
        name = (directory / _CURRENT).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return directory / name if _NAME.fullmatch(name) else None


def load(directory: Path, tables: Tables | None = None) -> Estimators:
    """The estimators in use, or the newest usable before them, or none at all. Never raises.

    Each version that cannot be used is logged; without any, the estimators
    know nothing and admission goes by the prior.
    """
    chosen = current(directory)
    kept = versions(directory)
    if chosen is not None:
        before = [p for p in kept if version_of(p) < version_of(chosen)]
        kept = [*before, chosen]
    for path in reversed(kept):
        try:
            return read(path, tables)
        except EstimatorDamaged as damage:
            log.warning("%s; the version before it is used, or else the prior", damage)
    return Estimators(tables=tables or shipped())


@cache
def _readable() -> TypeAdapter[Estimators]:
    """Builds estimators from plain data and arrays, and refuses what is not of their types."""
    return TypeAdapter(Estimators)


def _pack(value: Any, place: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """*value* as JSON, its arrays moved to *arrays* under their place."""
    if isinstance(value, np.ndarray):
        arrays[place] = value
        return {"array": place}
    if isinstance(value, datetime):
        return {"value": value.isoformat()}
    if is_dataclass(value):
        kept = (f.name for f in fields(value) if f.metadata.get("kept", True))
        value = {name: getattr(value, name) for name in kept}
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, Mapping):
        return {"map": [[k, _pack(v, f"{place}.{k}", arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_pack(v, f"{place}.{i}", arrays) for i, v in enumerate(value)]}
    return {"value": value}


def _unpack(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """What `_pack` was given."""
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "map":
        return {k: _unpack(v, arrays) for k, v in content}
    if kind == "list":
        return [_unpack(v, arrays) for v in content]
    return content
