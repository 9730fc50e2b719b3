"""The numbers with which files of a folder configure its program."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from headway.code.arguments import arguments_of
from headway.code.documents import READERS, Documents
from headway.code.hydra import composed
from headway.estimate.options import AMOUNTS, last_part, leaves, number_of, words_of
from headway.model.job_rules import may_be_secret

_MOST_FILES, _MOST_VALUES = 8, 200
_NAME = re.compile(r"[\w./-]{1,200}")
_REFERENCE = re.compile(r"\s*\$\{([\w.-]+)\}\s*")
"""As OmegaConf and spaCy write what stands under another name: ``${trainer.max_epochs}``."""
_MOST_STEPS = 8


def settings_of(folder: Path, command: Sequence[str]) -> dict[str, float]:
    """What *command* is configured with by files of *folder* that it names, or Hydra reads.

    And by the options of its script that it leaves out, or gives by a short name; those say nothing
    of how much there will be where a file does. By dotted names; of several files the later one
    wins. One of very many values is data, and none of them counts. Empty where one of them cannot
    be read: it might say something else; so where how many epochs there will be follows from what
    only its program computes.
    """
    files, words = Documents(folder.resolve()), list(words_of(command))
    found: dict[str, object] = {}
    try:
        for document in (composed(files, words), *map(files.read, _named(files, words))):
            values = dict(leaves(document))
            found |= values if len(values) <= _MOST_VALUES else {}
    except (ValueError, RecursionError):
        return {}
    found = {name: _followed(value, found) for name, value in found.items()}
    if any(last_part(name) in AMOUNTS and "${" in str(value) for name, value in found.items()):
        return {}
    arguments = arguments_of(files, words)
    if any(last_part(name) in AMOUNTS for name in found):
        arguments = {n: value for n, value in arguments.items() if last_part(n) not in AMOUNTS}
    found = {**(arguments if len(arguments) <= _MOST_VALUES else {}), **found}
    return {
        name: number
        for name, value in found.items()
        if _NAME.fullmatch(name)
        and not may_be_secret(last_part(name), value)
        and (number := number_of(value)) is not None
    }


def _followed(value: object, found: Mapping[str, object]) -> object:
    """What stands where *value* refers to, if it does; else *value*."""
    for _ in range(_MOST_STEPS):
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None or reference[1] not in found:
            break
        value = found[reference[1]]
    return value


def _named(files: Documents, words: Sequence[str]) -> list[str]:
    """Files of configuration among *words*, also as values of options."""
    names = [word.rpartition("=")[2].strip("'\"") for word in words]
    known = [name for name in names if PurePosixPath(name).suffix in READERS]
    return [name for name in dict.fromkeys(known) if files.text(name) is not None][:_MOST_FILES]
