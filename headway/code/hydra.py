"""The configuration that Hydra composes for a script, from the files of its folder.

As Hydra 1.1 and later do it (https://hydra.cc/docs/advanced/defaults_list): the primary
configuration's `defaults` are taken in their order, each below the package of its group, the
last one wins, and the command chooses other files of a group.
"""

import ast
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.code.documents import Documents
from headway.estimate.options import leaves, options_of

_HEADER = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_MOST_FILES = 64
_SELF = "_self_"
_ARGUMENTS = ("config_path", "config_name")


def composed(files: Documents, words: Sequence[str]) -> dict[str, object]:
    """What the script that *words* start is configured with, by dotted names, without overrides.

    Empty where they start no script of Hydra's, or several runs at once.

    Raises:
        ValueError: One of the files is not in the folder or cannot be read: nothing is known.
    """
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    main = None if at is None else _main_of(files.text(words[at]) or "")
    if at is None or main is None:
        return {}
    options = dict(options_of(words[at + 1 :]))
    path = options.get("config-path", options.get("cp", main[0]))
    name = options.get("config-name", options.get("cn", main[1]))
    if not path or not name or {"-m", "--multirun"} & set(words[at:]):
        return {}
    if any(word.startswith("~") for word in words[at:]):
        raise ValueError("a choice is taken out by the command")
    folder = posixpath.normpath(posixpath.join(posixpath.dirname(words[at]), path))
    choices: dict[str, Any] = {
        group: choice
        for group, choice in options.items()
        if files.text(f"{folder}/{group}/{choice}.yaml") is not None
    }
    while True:
        made = _Composition(files, folder, dict(choices))
        made.add(name.removesuffix(".yaml"), "")
        for group in [each for each in choices if each not in made.chosen]:  # +group=choice
            made.add_choice(group, choices[group], group.replace("/", "."))
        if made.choices == choices:
            return {n: v for n, v in made.values.items() if not n.startswith("hydra.")}
        choices = made.choices  # one file has overridden what another one had chosen


def _main_of(text: str) -> list[str | None] | None:
    """`config_path` and `config_name` of the function that Hydra starts; None without one."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for each in ast.walk(tree):
        for call in getattr(each, "decorator_list", ()):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "hydra.main":
                given = dict(zip(_ARGUMENTS, call.args, strict=False))
                given |= {each.arg: each.value for each in call.keywords if each.arg}
                said = [getattr(given.get(each), "value", None) for each in _ARGUMENTS]
                return [each if isinstance(each, str) else None for each in said]
    return None


@dataclass(slots=True)
class _Composition:
    files: Documents
    folder: str
    choices: dict[str, Any]
    """By group, what is taken in the place of what a list of defaults says."""
    values: dict[str, object] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    """Groups that were in a list of defaults."""
    count: int = 0

    def add(self, path: str, package: str) -> None:
        """Add the file *path* below *package*, which its header may say otherwise."""
        self.count += 1
        if self.count > _MOST_FILES:
            raise ValueError(f"more than {_MOST_FILES} files, or one that includes itself")
        name, group = f"{self.folder}/{path}.yaml", posixpath.dirname(path)
        document = self.files.read(name)
        header = _HEADER.search(self.files.text(name) or "")
        if header is not None:
            package = _below("", header[1].replace("_group_", group.replace("/", ".")))
        defaults = document.pop("defaults", None) or []
        if not isinstance(defaults, list):
            raise ValueError(f"the defaults of {name} are no list")
        for each in defaults if _SELF in defaults else [*defaults, _SELF]:
            if each == _SELF:
                self.values |= leaves(document, package)
            else:
                self._add_default(each, group, package)

    def _add_default(self, default: object, group: str, package: str) -> None:
        """Add what one line of the defaults of a file of *group* names."""
        if isinstance(default, str):
            path, _, named = default.partition("@")
            self.add(_path(group, path), _below(package, named or "_here_"))
            return
        if not isinstance(default, Mapping) or len(default) != 1:
            raise ValueError(f"{default!r} is no default")
        (key, choice), *_ = default.items()
        *kinds, key = str(key).split()
        key, _, named = key.partition("@")
        own = _path(group, key)
        if own.startswith("hydra/"):
            return
        if "override" in kinds:
            self.choices.setdefault(own, choice)
            return
        below = _below(package, named or key.lstrip("/").replace("/", "."))
        if below == own.replace("/", "."):  # elsewhere a choice has to name the package
            self.chosen.add(own)
            choice = self.choices.get(own, choice)
        if "optional" not in kinds or self.files.text(f"{self.folder}/{own}/{choice}.yaml"):
            self.add_choice(own, choice, below)

    def add_choice(self, group: str, choice: Any, package: str) -> None:
        """Add the files of *group* that were chosen: one, several, or none."""
        for each in choice if isinstance(choice, list) else [choice]:
            if each not in (None, "null"):
                self.add(f"{group}/{each}", package)


def _path(group: str, name: str) -> str:
    return name[1:] if name.startswith("/") else posixpath.join(group, name)


def _below(package: str, named: str) -> str:
    """The package *named* in a file that is below *package*."""
    if named == "_here_":
        return package
    if named.startswith("_global_"):
        return named.removeprefix("_global_").lstrip(".")
    return ".".join(filter(None, (package, named)))
