"""The code that a run brought along, on the node where it starts.

Its parts come from the ledger once and stay in this node's cache. Each attempt has a copy of its
own that the program may write to, and that goes with its container.
"""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headway.code.unpack import ChunkCache, unpack
from headway.errors import CodeMissing, InvalidInput
from headway.home import have_passable
from headway.model.code import CodeManifest
from headway.run.here import NodeAttempt
from headway.settings import Settings
from headway.site import as_ids
from headway.trees import remove

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedCode:
    """Code whose parts are all on this node."""

    manifest: CodeManifest
    fetched_bytes: int
    """Of them, what had to be brought here."""


def stage_code(attempt: NodeAttempt) -> StagedCode | None:
    """Have the parts of the run's code on this node; None where it brought none.

    Raises:
        InvalidInput: The job names a folder that nobody has sent.
        CodeMissing: Its team has it not, or not any more.
    """
    job = attempt.job
    if job.code is None:
        if job.workdir:
            allowed = "nobody has sent it: submit the job by `headway submit` or `headway run`"
            raise InvalidInput("workdir", job.workdir, allowed)
        return None
    manifest, cache = code_parts(attempt, job.code)
    return StagedCode(manifest, cache.have(manifest.chunks))


def working_copy(attempt: NodeAttempt) -> Path | None:
    """The attempt's own copy of its code, made where it is not there; None where it brought none.

    Raises:
        CodeMissing: A part of it is nowhere any more.
        CacheUnusable: The disk does not take it.
    """
    if attempt.job.code is None:
        return None
    place = attempt.working_copy
    if not place.exists():
        have_passable(place.parent)
        manifest, cache = code_parts(attempt, attempt.job.code)
        unpack(manifest, cache, place, as_ids(attempt.user))
    return place


def forget_working_copy(settings: Settings, container: str) -> None:
    """Remove the copy of *container*, which is gone. Idempotent."""
    try:
        remove(settings.work_dir / container)
    except OSError as error:
        log.warning("the working copy of %s was not removed: %s", container, error)


def code_parts(attempt: NodeAttempt, code_id: str) -> tuple[CodeManifest, ChunkCache]:
    """Of what files the code is, and what gives their content.

    Raises:
        CodeMissing: Its team has it not, or not any more.
    """
    site, team = attempt.site, attempt.job.team
    manifest = site.ledger.code.manifest(team, code_id)
    if manifest is None:
        raise CodeMissing(
            code_id, f"team {team} has sent no such folder, or it has been removed since"
        )
    if manifest.content_id != code_id:
        raise CodeMissing(code_id, "what the ledger has under its id is another one")

    fetch = partial(site.ledger.code.chunks, team)
    return manifest, ChunkCache(site.settings.code_dir / team, code_id, fetch)
