"""The numbers with which files of a folder configure its program."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from headway.code.documents import READERS, Documents
from headway.code.hydra import composed
from headway.estimate.options import last_part, leaves, number_of, words_of
from headway.model.job_rules import may_be_secret

_MOST_FILES, _MOST_VALUES = 8, 200
_NAME = re.compile(r"[\w./-]{1,200}")


def settings_of(folder: Path, command: Sequence[str]) -> dict[str, float]:
    """What *command* is configured with by files of *folder* that it names, or Hydra reads.

    By dotted names; of several files the later one wins. One of very many values is data,
    and none of them counts. Empty where one of them cannot be read: it might say something else.
    """
    files, words = Documents(folder.resolve()), list(words_of(command))
    found: dict[str, object] = {}
    try:
        for document in (composed(files, words), *map(files.read, _named(files, words))):
            values = dict(leaves(document))
            found |= values if len(values) <= _MOST_VALUES else {}
    except (ValueError, RecursionError):
        return {}
    return {
        name: number
        for name, value in found.items()
        if _NAME.fullmatch(name)
        and not may_be_secret(last_part(name), value)
        and (number := number_of(value)) is not None
    }


def _named(files: Documents, words: Sequence[str]) -> list[str]:
    """Files of configuration among *words*, also as values of options."""
    names = [word.rpartition("=")[2].strip("'\"") for word in words]
    known = [name for name in names if PurePosixPath(name).suffix in READERS]
    return [name for name in dict.fromkeys(known) if files.text(name) is not None][:_MOST_FILES]
