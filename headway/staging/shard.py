"""Which files of a data set a node gets that is to have a part of them only. Pure."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

from headway.errors import InvalidInput
from headway.staging.source import Source, SourceFile

FIELD = "dataset.shard"


@dataclass(frozen=True, slots=True)
class Part:
    """One of several parts of equal right; the only one, unless said otherwise."""

    number: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """What a node has of a data set."""

    part: Part
    files: tuple[str, ...]
    """Names of its files, below the data set's folder."""
    files_in_all: int
    listing: str
    """SHA-256 of names and sizes of all files: where it is another one, so are the parts."""


def divided(files: Sequence[SourceFile], parts: int) -> list[list[SourceFile]]:
    """*files* in so many parts of nearly one size, the same ones wherever this is asked.

    The largest file first, each to the part that has least by then: no part has more than another
    one by more than the largest file (R. L. Graham, "Bounds on multiprocessing timing anomalies",
    1969). A file of unknown size counts as an empty one; of equal parts that with the fewest files
    comes first.
    """
    found: list[list[SourceFile]] = [[] for _ in range(parts)]
    least = [(0, 0, number) for number in range(parts)]
    heapify(least)
    for each in sorted(files, key=lambda one: (-(one.size_bytes or 0), one.name)):
        size_bytes, count, number = least[0]
        found[number].append(each)
        heapreplace(least, (size_bytes + (each.size_bytes or 0), count + 1, number))
    order = {each.name: at for at, each in enumerate(files)}
    return [sorted(part, key=lambda one: order[one.name]) for part in found]


def part_of(source: Source, part: Part) -> Source:
    """*source* as if it had the files of *part* only.

    Raises:
        InvalidInput: It cannot be divided into so many.
    """
    if part.of == 1:
        return source
    with_data = sum(each.size_bytes != 0 for each in source.files)
    if not source.is_directory or with_data < part.of:
        what = f"it has {with_data} with data" if source.is_directory else "it is a single file"
        raise InvalidInput(
            FIELD,
            "node",
            f"over {part.of} nodes the data set has to be a directory of at least as many files, "
            f"but {what}; divide it into more files, or leave shard out",
        )
    files = tuple(divided(source.files, part.of)[part.number])
    return replace(source, files=files, identity=_identity(source, part))


def keys_nearby(
    source: Source, sha256: str | None, user: tuple[int, int] | None, *, most_parts: int
) -> list[str]:
    """Keys under which caches of *user*'s may have files of *source*, which is a whole one.

    As a whole, and where it is a directory as any of up to *most_parts* parts; staged by jobs that
    tell its hash, *sha256*, and by others.
    """
    identities = [source.identity]
    if source.is_directory:
        cuts = (Part(number, of) for of in range(2, most_parts + 1) for number in range(of))
        identities += [_identity(source, part) for part in cuts]
    sets = [replace(source, identity=each) for each in identities]
    return [each.key(told, user) for told in {sha256, None} for each in sets]


def _identity(source: Source, part: Part) -> str:
    text = json.dumps([source.identity, part.number, part.of])
    return hashlib.sha256(text.encode()).hexdigest()


def shard_of(source: Source, part: Part) -> Shard:
    """What *part* of *source*, which can be divided so, is."""
    listed = json.dumps([[each.name, each.size_bytes] for each in source.files])
    names = tuple(each.name for each in part_of(source, part).files)
    listing = hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()
    return Shard(part, names, len(source.files), listing)
