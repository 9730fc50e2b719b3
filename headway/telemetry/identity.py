"""Whose a process is that is no run's."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePath

import psutil

from headway.model.node import GpuProcess

_LONGEST = 60


def identified(process: GpuProcess) -> GpuProcess:
    """*process* with its user, program and start; as it is where it has ended or is not seen here.

    Of its command only the program and the first argument that is no option: others may be secret.
    """
    try:
        found = psutil.Process(process.pid)
        with found.oneshot():
            user, words, name = found.username(), found.cmdline(), found.name()
            since = datetime.fromtimestamp(found.create_time(), UTC)
    except (psutil.Error, OSError):
        return process
    return replace(process, user=user, command=_program(words) or name, since=since)


def _program(words: list[str]) -> str:
    if not words:
        return ""
    first = next((now for before, now in pairwise(words) if now[:1] != "-" and before != "-c"), "")
    return " ".join(filter(None, (PurePath(words[0]).name, first)))[:_LONGEST]
