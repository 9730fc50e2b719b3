"""Parts of data sets that are divided among the nodes of a gang: what its programs are told."""

import json
from collections.abc import Iterator

from headway.model.run import Exit, ExitKind
from headway.run.here import NodeAttempt
from headway.runtime.port import BindMount

SHARDS = "/shards"


def lists_of(attempt: NodeAttempt) -> Iterator[tuple[str, BindMount, str]]:
    """The list of each part that is here: the data set's name, and a mount with the file's name.

    The file is JSON: ``part`` and ``parts``, numbers; ``files``, the names below the data set's
    folder; ``files_in_all``, how many all nodes have together.
    """
    for name, staged in attempt.datasets.items():
        if staged.shard is None:
            continue
        file = f"{name or 'dataset'}.json"
        told = {
            "part": staged.shard.part.number,
            "parts": staged.shard.part.of,
            "files": staged.shard.files,
            "files_in_all": staged.shard.files_in_all,
        }
        folder = attempt.told("shards", file, json.dumps(told))
        yield name, BindMount(folder, SHARDS), file


def why_parts_differ(attempt: NodeAttempt) -> Exit | None:
    """Why a gang whose parts are all ready does not start: they were cut from other files.

    Some would be in two parts then, or in none, and nobody would see it. Each part asks before it
    starts: one whose process died may have brought its data once more since rank 0 asked.
    """
    if not any(each.shard for each in attempt.job.data.values()):
        return None
    ledger, meeting = attempt.site.ledger, attempt.meeting
    gang_id = attempt.run_id if meeting is None else meeting.gang_id
    notes = [
        note
        for run in (ledger.runs.get(gang_id), *ledger.runs.ranks(gang_id, attempt.number))
        for note in ledger.staged.of_run(run.run_id)
        if note.attempt == run.attempt and note.listing
    ]
    first = {note.name: note for note in reversed(notes)}
    for note in notes:
        other = first[note.name]
        if note.listing != other.listing:
            return Exit(
                ExitKind.REFUSED,
                None,
                f"data set {note.name or note.uri}: node {note.node} found other files or sizes "
                f"than node {other.node}, so their parts do not make up one whole; have the same "
                "files on all nodes, and nobody write to them meanwhile",
            )
    return None
