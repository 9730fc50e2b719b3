"""The log of an attempt on this node, in pieces by offset; the run's secrets are struck out.

What they are is known while its container is there; then its file is free of them.
"""

import stat
from pathlib import Path

from headway.model.run_file import LogPiece
from headway.run.here import container_name, log_path
from headway.runtime import secretfiles
from headway.runtime.logfile import read_chunk
from headway.runtime.redact import Redactor
from headway.settings import Settings

PIECE_BYTES = 1 << 18


def log_piece(
    settings: Settings, run_id: str, attempt: int, offset: int, *, whole: bool = False
) -> LogPiece:
    """What the log has from *offset* on, at most `PIECE_BYTES` of it and what a secret takes.

    It is empty where nothing more is there yet, or no file. The beginning of what may become a
    secret is held back, so that the next piece begins with it.

    Args:
        settings: Of this node.
        run_id: The run.
        attempt: Its attempt.
        offset: Where to go on.
        whole: Nothing more will come: then nothing is held back.
    """
    path = log_path(settings, run_id, attempt)
    # Read before the log: as long as one is in it, its value is here.
    secrets = secretfiles.read(settings.secrets_dir / container_name(run_id, attempt))
    redactor = Redactor(secrets)
    # Whoever asks from the middle of a secret on must not be given its end.
    begin = max(0, offset - redactor.longest)
    most = offset - begin + PIECE_BYTES + redactor.longest
    chunk = read_chunk(path, begin, most)
    first = chunk.next_offset - len(chunk.data)
    clean = redactor.feed(chunk.data)
    if whole and len(chunk.data) < most:
        clean += redactor.rest()
    return LogPiece(clean[max(0, offset - first) :], max(offset, first))


def log_bytes(path: Path) -> int | None:
    """How long the log is now; None where no file is."""
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None
