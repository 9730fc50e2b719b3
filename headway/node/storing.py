"""Brings what ended runs have left on this node to the site's store, and checks that it is there.

The ledger is told last: until then the copy here is the only one, and is not pruned. Whatever
fails or is killed is done again from its beginning.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.errors import StoreFailed
from headway.ledger.records import RunRecord
from headway.model.run_file import MOST_FILES, MOST_FOLDERS, OutputFile, OutputList
from headway.node.file_answers import file_document
from headway.node.prune import busy_here, is_over
from headway.run.here import log_path, log_piece
from headway.run.outputs import list_outputs, opened_output
from headway.settings import Settings
from headway.site import Site
from headway.staging.store import Store
from headway.units import format_size

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_AT_ONCE = 50
_PIECE_BYTES = 4 << 20
_LARGE_BYTES, _FULL_FRAC = 1 << 30, 0.5


def store_of(settings: Settings) -> Store | None:
    """The site's store; None where it has none."""
    url = settings.store_url
    return None if url is None else Store(url.get_secret_value())


def output_key(key: str, href: str) -> str:
    """Where in the store an output is, of a run that is under *key*."""
    return f"{key}/outputs/{href}"


def log_key(key: str, attempt: int) -> str:
    """Where in the store the log of an attempt is."""
    return f"{key}/log/attempt-{attempt}.log"


def store_ended(site: Site) -> int:
    """Bring what this node has of runs that have ended to the store; how many were brought."""
    store = store_of(site.settings)
    if store is None:
        return 0
    done = 0
    busy = busy_here(site)
    for record, attempt in site.ledger.stored.missing(site.settings.node, _AT_ONCE):
        if not is_over(record, busy):
            continue  # it is still being cleaned up; secrets are struck out of its log then
        try:
            _store_part(site, store, record, attempt)
            done += 1
        except (StoreFailed, OSError) as error:
            log.warning("run %s is not in the store: %s; tried again", record.run_id, error)
    return done


def remove_stored(site: Site, store: Store, run_id: str, *, before: int | None = None) -> None:
    """Remove the run's parts from *store*; with *before* only this node's of earlier attempts.

    Raises:
        StoreFailed: The store does not let go of one.
    """
    here = site.settings.node
    mine = {each.attempt for each in site.ledger.attempts.of_run(run_id) if each.node == here}
    for part in site.ledger.stored.of_run(run_id):
        goes = before is None or (part.attempt < before and part.attempt in mine)
        if goes and part.is_there:
            store.remove(part.key)
            site.ledger.stored.removed(run_id, part.attempt)


def _store_part(site: Site, store: Store, record: RunRecord, attempt: int) -> None:
    """Bring what lies here of the run, whose last attempt here was *attempt*."""
    run_id = record.run_id
    folder = site.settings.runs_dir / run_id
    found = list_outputs(folder)
    # Each part has a folder of its own: one is removed while another one is brought.
    key = f"{quote(record.team, safe='')}/{run_id}-attempt-{attempt}"
    logs = {
        str(number): _store_log(site.settings, store, run_id, number, key)
        for number in range(1, record.attempt + 1)
        if log_path(site.settings, run_id, number).is_file()
    }
    if found is None and not logs:
        site.ledger.stored.add(run_id, attempt, "", files=0, size_bytes=0)
        return
    found = found or OutputList(())
    full = [each for each in found.files if not _is_mostly_holes(folder, each)]
    holed = [each for each in found.files if each not in full]
    document = {
        "files": [_store_output(store, folder, each, key) for each in full],
        "complete": found.complete,
        "left_out": found.left_out,
        "not_stored": [file_document(each, None) for each in holed],
        "logs": logs,
    }
    _put_checked(store, f"{key}/{MANIFEST}", [json.dumps(document).encode()])
    size_bytes = sum(each.size_bytes for each in full)
    note = _note(holed, complete=found.complete)
    if note:
        log.warning("run %s is in the store, but %s", run_id, note)
    site.ledger.stored.add(run_id, attempt, key, files=len(full), size_bytes=size_bytes, note=note)
    remove_stored(site, store, run_id, before=attempt)


def _note(holed: Sequence[OutputFile], *, complete: bool) -> str:
    """What is not in the store, for the run's user; empty where all is."""
    said = []
    if holed:
        first = f"{holed[0].path} ({format_size(holed[0].size_bytes)}) is mostly holes"
        more = f", and {len(holed) - 1} more are" if len(holed) > 1 else ""
        said.append(f"{first}{more}: let the program pack it, as `tar -S` does")
    if not complete:
        said.append(f"only {MOST_FILES:,} files, {MOST_FOLDERS} folders deep, were brought")
    rest = "the rest stays on its node until the run's folder there is pruned"
    return "; ".join([*said, rest]) if said else ""


def _is_mostly_holes(folder: Path, file: OutputFile) -> bool:
    """Whether a large file would be read for hours, and hold next to nothing."""
    if file.size_bytes <= _LARGE_BYTES:
        return False
    with opened_output(folder, file.name) as opened:
        seen = os.fstat(opened.descriptor)
        return seen.st_blocks * 512 < seen.st_size * _FULL_FRAC


def _store_output(store: Store, folder: Path, file: OutputFile, key: str) -> dict[str, Any]:
    with opened_output(folder, file.name) as opened:

        def pieces() -> Iterator[bytes]:
            offset = 0
            while data := opened.piece(offset, _PIECE_BYTES):
                yield data
                offset += len(data)

        sha256 = _put_checked(store, output_key(key, file.href), pieces())
        if opened.is_changed():
            raise StoreFailed(store.url, f"{file.path} was written to meanwhile")
    return {**file_document(opened.file, sha256), "version": sha256}


def _store_log(
    settings: Settings, store: Store, run_id: str, attempt: int, key: str
) -> dict[str, int]:
    """Where the log begins and ends."""
    first = log_piece(settings, run_id, attempt, 0, whole=True)
    end = first.end

    def pieces() -> Iterator[bytes]:
        nonlocal end
        piece = first
        while piece.data:
            yield piece.data
            end = piece.end
            piece = log_piece(settings, run_id, attempt, end, whole=True)

    _put_checked(store, log_key(key, attempt), pieces())
    return {"start": first.start, "end": end}


def _put_checked(store: Store, key: str, pieces: Any) -> str:
    """Put it, and read it back; its digest.

    Raises:
        StoreFailed: It is not there as it was put.
    """
    sent, there = hashlib.sha256(), hashlib.sha256()

    def counted() -> Iterator[bytes]:
        for piece in pieces:
            sent.update(piece)
            yield piece

    store.put(key, counted())
    for piece in store.pieces(key):
        there.update(piece)
    if sent.digest() != there.digest():
        raise StoreFailed(store.url, f"{key} is not there as it was sent")
    return sent.hexdigest()
