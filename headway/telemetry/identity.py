"""Whose a process is that is no run's."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import dropwhile
from pathlib import PurePath

import psutil

from headway.model.node import GpuProcess

_LONGEST = 60
_PYTHON = re.compile(r"python[\d.]*")
_ALONE = {"-u", "-B", "-s", "-E", "-I"}
"""Python's flags that take no value: what comes after them is the script."""
_ARGUMENT = re.compile(r"[\w./][\w./-]*")


def identified(process: GpuProcess) -> GpuProcess:
    """*process* with its user, program and start; as it is where it has ended or is not seen here.

    Of its command only the program and an argument right behind it: others may be secret.
    """
    try:
        user, command, since = _seen(psutil.Process(process.pid))
    except (psutil.Error, OSError):
        return process
    return replace(process, user=user, command=command, since=since)


@lru_cache(maxsize=1024)
def _seen(found: psutil.Process) -> tuple[str, str, datetime]:
    """Its user, command and start; asked once for each process: equal are pid and start."""
    with found.oneshot():
        user, words, name = found.username(), found.cmdline(), found.name()
        since = datetime.fromtimestamp(found.create_time(), UTC)
    return _shown(user), _shown(_program(words) or _program([name])), since


def _program(words: list[str]) -> str:
    """Of a title that a program writes over its command, what stands before its first space."""
    first = next(iter(words[:1] and words[0].split()), "")
    program, rest = PurePath(first).name, words[1:]
    if _PYTHON.fullmatch(program):
        rest = list(dropwhile(_ALONE.__contains__, rest))
    told = rest[0] if rest and _ARGUMENT.fullmatch(rest[0]) else ""
    return f"{program} {told}".strip()


def _shown(text: str) -> str:
    """*text* as it can be kept and printed: a byte that is no UTF-8 comes as half a character."""
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST])
