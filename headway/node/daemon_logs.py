"""Bounds the logs of this home's daemons, PostgreSQL's among them: the newest part is kept."""

import os
import shutil
from pathlib import Path

from headway.units import MIB

LOG_LIMIT_BYTES = 32 * MIB


def bound_logs(state_dir: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> list[Path]:
    """Empty each log of more than *limit_bytes*; what was in it is in ``NAME.log.1`` from then on.

    Who writes a log appends to it and keeps it open, so it is copied and emptied in its
    place. A line that is written between the two is lost.

    Returns:
        The logs that were emptied.

    Raises:
        OSError: One could not be copied, for want of a disk say: it stays as it is. The others
            are emptied all the same.
    """
    found, failed = [], list[OSError]()
    for log in state_dir.glob("*.log"):
        try:
            if log.stat().st_size > limit_bytes:
                shutil.copy(log, f"{log}.1")  # with its permissions
                os.truncate(log, 0)
                found.append(log)
        except OSError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return found
