"""Plain data that a person wrote, and where each value of it stands."""

from dataclasses import dataclass, field
from typing import Any

from headway.errors import shown

Path = tuple[str | int, ...]
"""Keys and list positions that lead to a value."""


@dataclass(frozen=True)
class Document:
    """Plain data, and where each value of it was written."""

    values: Any
    places: dict[Path, str] = field(default_factory=dict)
    """Path of a value → file and line, such as ``job.yaml:7``."""

    def place(self, path: Path) -> str:
        """File and line of the value at *path*, or of the nearest group around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return ""

    def group(self, *path: str | int) -> dict[str, Any]:
        """The group of keys at *path*; an empty one where there is none."""
        found = value_at(self.values, path)
        return found if isinstance(found, dict) else {}


class Word:
    """Stands for a value that cannot be shown; its repr is what a message says."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word


NOTHING = Word("nothing")
HIDDEN = Word("a hidden value")


def value_at(values: Any, path: Path) -> object:
    """The value at *path*; NOTHING where none was given."""
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return NOTHING
    return NOTHING if values is None else values


def dotted(path: Path) -> str:
    """*path* as people write it: ``resources.cpus``, ``command[2]``; hostile keys quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = part.isascii() and part.replace("_", "").replace("-", "").isalnum()
        word = part if plain and len(part) <= 64 else shown(part, 40)
        text += f".{word}" if text else word
    return text or "job"
