"""Brings what ended runs have left on this node to the site's store, and checks that it is there.

The ledger is told last: until then the copy here is the only one, and is not pruned. Whatever
fails or is killed is done again from its beginning.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.errors import StoreFailed
from headway.ledger.records import RunRecord
from headway.model.run_file import OutputFile, OutputList
from headway.node.file_answers import file_document
from headway.node.prune import busy_here, is_over
from headway.policy.retention import seconds
from headway.run.here import log_path
from headway.run.log_pieces import log_piece
from headway.run.outputs import list_outputs, opened_output
from headway.settings import Settings
from headway.site import Site
from headway.staging.store import Store

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_AT_ONCE = 50
_PIECE_BYTES = 4 << 20
_EMPTY_FRAC, _EMPTY_BYTES = 0.5, 1 << 30


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
    """Bring the runs that have ended here to the store; how many were brought."""
    store = store_of(site.settings)
    if store is None:
        return 0
    done = 0
    busy = busy_here(site)
    for record in site.ledger.stored.missing(site.settings.node, _AT_ONCE):
        if not is_over(site, record, busy):
            continue  # it is still being cleaned up; secrets are struck out of its log then
        try:
            _store_run(site, store, record)
            done += 1
        except (StoreFailed, OSError) as error:
            log.warning("run %s is not in the store: %s; tried again", record.run_id, error)
    return done


def forget_stored(site: Site) -> int:
    """Remove from the store what its team's `keep_days` lets go of; how many runs."""
    store = store_of(site.settings)
    done = 0
    for team, settings in site.policy_settings.teams.items() if store is not None else ():
        keep_s = seconds(settings.keep_days)
        if store is None or keep_s is None:
            continue
        here = site.settings.node
        for record in site.ledger.stored.ended_before(here, team, keep_s, _AT_ONCE):
            store.remove(_key(record))
            site.ledger.stored.removed(record.run_id)
            log.info("run %s was removed from the store", record.run_id)
            done += 1
    return done


def _key(record: RunRecord) -> str:
    return f"{quote(record.team, safe='')}/{record.run_id}"


def _store_run(site: Site, store: Store, record: RunRecord) -> None:
    folder = site.settings.runs_dir / record.run_id
    found = list_outputs(folder)
    key = _key(record)
    logs = {
        str(attempt): _store_log(site.settings, store, record.run_id, attempt, key)
        for attempt in range(1, record.attempt + 1)
        if log_path(site.settings, record.run_id, attempt).is_file()
    }
    if found is None and not logs:
        site.ledger.stored.add(record.run_id, record.attempt, "", files=0, size_bytes=0)
        return
    found = found or OutputList(())
    if not found.complete:
        raise StoreFailed(store.url, f"{folder} has more files than are listed")
    files = [_store_output(store, folder, each, key) for each in found.files]
    document = {"files": files, "complete": True, "left_out": found.left_out, "logs": logs}
    _put_checked(store, f"{key}/{MANIFEST}", [json.dumps(document).encode()])
    size_bytes = sum(each.size_bytes for each in found.files)
    site.ledger.stored.add(
        record.run_id, record.attempt, key, files=len(files), size_bytes=size_bytes
    )


def _store_output(store: Store, folder: Path, file: OutputFile, key: str) -> dict[str, Any]:
    with opened_output(folder, file.name) as opened:
        seen = os.fstat(opened.descriptor)
        if seen.st_size > _EMPTY_BYTES and seen.st_blocks * 512 < seen.st_size * _EMPTY_FRAC:
            raise StoreFailed(
                "", f"{file.path} is mostly empty: pack it, or fetch it from the node"
            )

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
