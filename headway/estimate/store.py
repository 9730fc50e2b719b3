"""Versions of estimators on disk: numbers and text only, checked before they are believed.

A version is one file, ``estimators-000012-<sha256>.json``. Its name holds the
digest of its bytes, so that damage and tampering show; it holds one JSON text,
so that reading it runs no code; it is written beside its place and renamed, so
that it is never half there. ``CURRENT`` names the version in use.
"""

import hashlib
import logging
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from headway.durable import replace_file
from headway.errors import EstimatorDamaged
from headway.estimate.estimator import Estimators
from headway.estimate.physics import Tables, shipped
from headway.units import MIB

log = logging.getLogger(__name__)

LARGEST_BYTES = 512 * MIB
"""A model file is a few MiB; what is larger was not written by headway."""
_NAME = re.compile(r"estimators-([0-9]{6,9})-([0-9a-f]{64})\.json")
_CURRENT = "CURRENT"


@dataclass(frozen=True, slots=True)
class _Document:
    """What a file holds."""

    format: Literal[5, 6, 7]
    """4 and before were files of another kind; who knows 5 alone would leave out what is expected
    by work of a 6, and who knows 6, how new networks' batches count in a 7."""
    state: Estimators


def save(estimators: Estimators, directory: Path) -> Path:
    """Write *estimators* below *directory* and make it the version in use."""
    directory.mkdir(parents=True, exist_ok=True)
    data = _documents().dump_json(_Document(7, estimators))
    if len(data) > LARGEST_BYTES:  # nobody could read it
        raise EstimatorDamaged("what was learnt", f"{len(data)} bytes are too many to keep")
    digest = hashlib.sha256(data).hexdigest()
    path = directory / f"estimators-{estimators.version:06d}-{digest}.json"
    replace_file(path, data)
    use(path, directory)
    return path


def use(path: Path, directory: Path) -> None:
    """Make the version at *path* the one in use: promotion, and rolling back."""
    replace_file(directory / _CURRENT, f"{path.name}\n")


def read(path: Path, tables: Tables | None = None) -> Estimators:
    """The estimators in the file at *path*, with *tables* (the shipped ones when None).

    Raises:
        EstimatorDamaged: The file is missing, was changed, or is not of this format.
    """
    version_of(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise EstimatorDamaged(str(path), "it is larger than any that headway writes")
        data = path.read_bytes()
    except OSError as error:
        raise EstimatorDamaged(str(path), error.strerror or "it cannot be read") from error
    if hashlib.sha256(data).hexdigest() not in path.name:
        raise EstimatorDamaged(str(path), "its bytes do not match the sha256 in its name")
    try:
        return replace(_documents().validate_json(data).state, tables=tables or shipped())
    except ValueError as error:
        raise EstimatorDamaged(str(path), str(error)[:1000]) from error


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
            log.warning(
                "%s; the version before it is used, or else the rule for jobs that never ran",
                damage,
            )
    return Estimators(tables=tables or shipped())


@cache
def _documents() -> TypeAdapter[_Document]:
    """Writes estimators as JSON, and refuses to read what is not of their types."""
    return TypeAdapter(_Document)
