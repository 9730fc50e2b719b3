"""Which framework a program uses, told from what it imports; nothing of it is run."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from headway.estimate.framework_memory import known_framework

_PACKAGE = re.compile(r"^[\s\"'\[]*([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)
_MOST_BYTES = 1 << 20
_MOST_SCRIPTS = 3


def framework_of(folder: Path, command: Sequence[str], requirements: str) -> str:
    """The framework that needs most memory of those that a program uses; empty where it uses none.

    Args:
        folder: Of its code.
        command: The scripts of the folder that it names are read, with those of the folder that
            they import.
        requirements: A file of the folder that names packages; empty for none.
    """
    names = set(_imported(folder, command))
    if requirements:
        names |= set(_PACKAGE.findall(_text(folder / requirements)))
    return known_framework(names)


def _imported(folder: Path, command: Sequence[str]) -> Iterator[str]:
    words = (word for line in command for word in line.split())
    scripts = [folder / word for word in words if word.endswith(".py")]
    for script in scripts[:_MOST_SCRIPTS]:
        finder = _Finder(path=[str(script.parent), str(folder)])
        with suppress(OSError, SyntaxError, ValueError, RecursionError):  # or of another Python
            finder.run_script(str(script))
        # What is not in the folder is of an environment that need not be here.
        yield from (name.partition(".")[0] for name in finder.badmodules)


class _Finder(ModuleFinder):
    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        try:
            return super().find_module(name, path, parent)
        except AttributeError:  # a folder of modules without __init__.py, which it does not know
            raise ImportError(name) from None


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as opened:
            return opened.read(_MOST_BYTES)
    except OSError:
        return ""
