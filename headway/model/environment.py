"""What an environment of a run is made from, and known by.

A file of requirements is a job's, and is never handed to what installs: some of its lines would run
code of the job there, and the same text may mean something else in another folder. It is read here.
What is made from it has one spelling: named packages, wheels and indexes, nothing else.
"""

import hashlib
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from headway.errors import InvalidInput

MOST_REQUIREMENTS_BYTES = 1 << 20
_MOST_FILES = 32
_FIELD = "requirements"
_OPTION = re.compile(r"(--?[a-z][a-z-]*)(?:(?:\s*=\s*|\s+)(\S+))?")
_HASH = re.compile(r" --hash[= ]([a-z0-9]+:[0-9a-f]+)")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_INDEXES = {"-i": "--index-url", "--index-url": "--index-url"} | {
    "--extra-index-url": "--extra-index-url"
}
_SAID_ANYWAY = frozenset({"--prefer-binary"})
_FLAGS = frozenset({"--no-index", "--pre", "--require-hashes"})
_GIVEN = frozenset(
    {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)
_UV_TABLES = frozenset(
    {"sources", "index", "index-url", "extra-index-url", "find-links", "pip"}
) | {
    "constraint-dependencies",
    "override-dependencies",
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What is to be installed, in the one spelling that it has."""

    options: tuple[str, ...]
    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    wheels: tuple[str, ...]
    """Files of the job's folder that they may lead to."""

    @property
    def text(self) -> str:
        """As a file of requirements, beside which its wheels lie at their paths."""
        return "".join(f"{line}\n" for line in (*self.options, *self.lines))

    @property
    def constraints_text(self) -> str:
        """As a file of constraints."""
        return "".join(f"{line}\n" for line in self.constraints)


def read_requirements(
    path: str, files: Collection[str], read: Callable[[str], bytes]
) -> Requirements:
    """What the file *path* of a job's folder asks for, and those that it names.

    Args:
        path: Below the folder.
        files: All paths of the folder.
        read: Gives the content of one of *files*.

    Raises:
        InvalidInput: It is not there, or asks for what is installed by running code of the job.
    """
    reading = _Reading(files, read)
    reading.take(path, constrains=False)
    return Requirements(
        tuple(reading.options),
        tuple(sorted(reading.lines)),
        tuple(sorted(reading.constraints)),
        tuple(sorted(reading.wheels)),
    )


def given(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's *variables* that say where packages come from."""
    return {name: value for name, value in variables.items() if name.upper() in _GIVEN}


def environment_id(*basis: object) -> str:
    """The environment that is made from *basis*, which is all that tells it from others."""
    return hashlib.sha256(json.dumps([2, *basis]).encode()).hexdigest()[:32]


class _Reading:
    def __init__(self, files: Collection[str], read: Callable[[str], bytes]) -> None:
        self._files = files
        self._read = read
        self._taken: set[tuple[str, bool]] = set()
        self.options: dict[str, None] = {}
        """In the order in which they come: a later index counts less."""
        self.lines: set[str] = set()
        self.constraints: set[str] = set()
        self.wheels: set[str] = set()

    def take(self, path: str, *, constrains: bool) -> None:
        if (path, constrains) in self._taken:
            return
        self._taken.add((path, constrains))
        if path not in self._files:
            _refuse(path, "give a file of the folder that is sent along, such as requirements.txt")
        if len(self._taken) > _MOST_FILES:
            _refuse(path, f"give at most {_MOST_FILES} files")
        try:
            text = self._read(path).decode("utf-8-sig")
        except UnicodeDecodeError:
            _refuse(path, "write UTF-8")
        for line in _of_project(path, text) if path.endswith(".toml") else _lines(text):
            if not line.isprintable() or "${" in line:
                _refuse(line, "leave out variables and control characters")
            self._take_line(line, path, self.constraints if constrains else self.lines)

    def _take_line(self, line: str, path: str, into: set[str]) -> None:
        if not line.startswith("-"):
            into.add(self._requirement(line, path))
            return
        found = _OPTION.fullmatch(line)
        option, value = found.groups() if found else (line, None)
        constrains = into is self.constraints
        if value is None and option in _FLAGS:
            self.options[option] = None
        elif value is None:
            if option not in _SAID_ANYWAY:
                _refuse(line, _ALLOWED)
        elif option in ("-r", "--requirement", "-c", "--constraint"):
            self.take(
                _below(value, path), constrains=constrains or option in ("-c", "--constraint")
            )
        elif option in _INDEXES and _is_url(value):
            self.options[f"{_INDEXES[option]} {value}"] = None
        elif option in ("-f", "--find-links"):
            self._take_links(value, path)
        elif option != "--only-binary":
            _refuse(line, _ALLOWED)

    def _take_links(self, value: str, path: str) -> None:
        if _is_url(value):
            self.options[f"--find-links {value}"] = None
            return
        folder = _below(value, path)
        self.wheels |= {
            each
            for each in self._files
            if each.endswith(".whl") and (posixpath.dirname(each) or ".") == folder
        }
        self.options[f"--find-links ./{folder}"] = None

    def _requirement(self, line: str, path: str) -> str:
        text, *hashes = _HASH.split(line)
        if any(each.strip() for each in hashes[1::2]):
            _refuse(line, _ALLOWED)
        known = "".join(f" --hash={each}" for each in sorted(hashes[::2]))
        if text.endswith(".whl") and " " not in text and "://" not in text:
            wheel = _below(text, path)
            if wheel not in self._files:
                _refuse(line, "give a wheel of the folder that is sent along")
            self.wheels.add(wheel)
            return f"./{wheel}{known}"
        try:
            found = Requirement(text)
        except (InvalidRequirement, RecursionError):
            _refuse(line, _ALLOWED)
        if found.url and not (_is_url(found.url) and _names_wheel(found.url)):
            _refuse(line, _ALLOWED)
        found.name = canonicalize_name(found.name)  # never the name of a file
        return f"{found}{known}"


_ALLOWED = (
    "give packages by name, wheels (.whl) of the folder or by https, -r, -c and indexes: an "
    "environment is made of wheels alone, without running anything of the job, so build a wheel "
    "of what has none, and send it along"
)


def _lines(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if found := " ".join(_COMMENT.sub("", line).split()):
            yield found


def _of_project(path: str, text: str) -> list[str]:
    """The dependencies of a project, where it says them itself."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        _refuse(path, f"write TOML ({error})")
    match document.get("tool"):
        case {"uv": dict(table)} if found := _UV_TABLES & set(table):
            named = ", ".join(f"tool.uv.{each}" for each in sorted(found))
            _refuse(named, "leave it out, and say it in a requirements.txt")
        case _:
            pass
    match document.get("project"):
        case {"dependencies": list(lines)} if all(isinstance(each, str) for each in lines):
            return lines
        case _:
            pass
    allowed = "give a file with a list project.dependencies, not one that a build makes"
    return _refuse(path, allowed)


def _below(value: str, path: str) -> str:
    """The path below the job's folder that *value* in its file *path* means."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
    if found.startswith(("/", "../")) or found == ".." or ":" in found:
        _refuse(value, "give a path of the folder that is sent along")
    return found


def _is_url(value: str) -> bool:
    return value.startswith(("https://", "http://"))


def _names_wheel(url: str) -> bool:
    return url.partition("#")[0].partition("?")[0].endswith(".whl")


def _refuse(value: str, allowed: str) -> NoReturn:
    raise InvalidInput(_FIELD, value, allowed) from None
