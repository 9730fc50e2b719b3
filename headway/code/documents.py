"""Configuration files of a folder as plain data; nothing of them is run.

Only what lies in the folder is read, of a limited size: no link and no name leads out of it. Of
YAML is read what `read_document` takes: no anchors, no tags, no deep nesting.
"""

import configparser
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import InvalidInput
from headway.model.yaml_document import MAX_TEXT_BYTES, read_document


def _yaml(text: str) -> Any:
    return read_document(text, "configuration").values


def _ini(text: str) -> Any:
    """Sections under their dotted names, as spaCy has them; what is JSON's there counts as that."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign, assignment] # names as they are
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from None
    return {name: dict(map(_entry, section.items())) for name, section in parser.items()}


def _entry(entry: tuple[str, str]) -> tuple[str, Any]:
    name, value = entry
    try:
        return name, json.loads(value)
    except ValueError:
        return entry


READERS: Mapping[str, Callable[[str], Any]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".cfg": _ini,
    ".ini": _ini,
}


@dataclass(frozen=True, slots=True)
class Documents:
    """What files of one folder say."""

    folder: Path
    """With its links resolved."""

    def text(self, name: str) -> str | None:
        """The text of a file; None where the folder has no such one."""
        try:
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder) or not path.is_file():
                return None
            with path.open(encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_TEXT_BYTES + 1)
        except (OSError, RuntimeError, ValueError):  # a loop of links, a null character
            return None
        return text if len(text) <= MAX_TEXT_BYTES else None

    def read(self, name: str) -> dict[str, Any]:
        """The mapping in a file.

        Raises:
            ValueError: There is none, or it cannot be read.
        """
        text = self.text(name)
        try:
            value = READERS[PurePosixPath(name).suffix](text or "")
        except (InvalidInput, KeyError, ValueError, RecursionError) as error:
            raise ValueError(f"{name} cannot be read: {error}") from None
        if text is None or not isinstance(value, dict | None):
            raise ValueError(f"{name} is not there, or has no keys with values")
        return value or {}
