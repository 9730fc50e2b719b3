"""An array: one job that is run many times, each time with other values of its parameters."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from headway.errors import InvalidInput
from headway.model.document import HIDDEN, Document, dotted, value_at
from headway.model.job_fields import Refused, below, checked_text, whole
from headway.model.job_rules import SECRET_TEXT

Value = int | float | str
MAX_MEMBERS = 10_000
_MAX_PARAMETERS = 20
_MAX_CHARACTERS = 200
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_RANGE = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})")
_MEANT_AS_RANGE = re.compile(r"[-+.]?[0-9][-+0-9.,_eE]*\.\.[-+0-9.,_eE]*")
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_OURS = frozenset({"ID", "INDEX", "SIZE", "FILE"})
"""Ends of the variables that every member has; a parameter of that name would hide one."""
_GIVE = "give parameters, each with its values, such as lr: [0.1, 0.01], or a list of members"
_GIVE_VALUES = "give values, such as [0.1, 0.01], or a range of whole numbers, such as 1..5"
_AT_MOST = whole(1, MAX_MEMBERS)
PREFIX = "HEADWAY_ARRAY_"
FILE_VARIABLE = f"{PREFIX}FILE"


@dataclass(frozen=True, slots=True)
class Array:
    """The parameters of an array's members: a grid of every combination, or one by one."""

    grid: Mapping[str, tuple[Value, ...]]
    """By parameter its values; empty where `rows` has the members."""
    rows: tuple[Mapping[str, Value], ...] = ()
    at_most: int | None = None
    """So many members may run at once; None for as many as find room."""

    @property
    def size(self) -> int:
        """How many members it has."""
        return len(self.rows) or prod(map(len, self.grid.values()))

    def parameters(self, index: int) -> dict[str, Value]:
        """The values of the member *index*, from 1; the last parameter changes first."""
        if self.rows:
            return dict(self.rows[index - 1])
        left, found = index - 1, {}
        for name, values in reversed(list(self.grid.items())):
            left, at = divmod(left, len(values))
            found[name] = values[at]
        return dict(reversed(found.items()))

    def longest(self) -> dict[str, Value]:
        """Of each parameter the value with the longest text: no member's job is longer."""
        values: dict[str, list[Value]] = {name: list(each) for name, each in self.grid.items()}
        for row in self.rows:
            for name, value in row.items():
                values.setdefault(name, []).append(value)
        return {name: max(each, key=lambda value: len(str(value))) for name, each in values.items()}

    def document(self) -> dict[str, Any]:
        """The array as plain data that `read_array` reads again."""
        if self.rows:
            members: dict[str, Any] = {"members": [dict(row) for row in self.rows]}
        else:
            # A list of pairs: PostgreSQL gives the keys of an object back in an order of its own.
            members = {"parameters": [[name, list(values)] for name, values in self.grid.items()]}
        return {**members, "at_most": self.at_most}


@dataclass(frozen=True, slots=True)
class Membership:
    """Which member of which array a run is."""

    array_id: str
    index: int
    size: int
    parameters: Mapping[str, Value]

    def environment(self) -> dict[str, str]:
        """The variables by which its program finds that, but for the path of its file."""
        own = {"ID": self.array_id, "INDEX": str(self.index), "SIZE": str(self.size)}
        named = {name.upper(): str(value) for name, value in self.parameters.items()}
        return {f"{PREFIX}{name}": value for name, value in {**named, **own}.items()}

    def file(self) -> str:
        """The same as the JSON document that its program may read."""
        about = {"array": self.array_id, "index": self.index, "size": self.size}
        return json.dumps({**about, "parameters": dict(self.parameters)}, indent=2) + "\n"


def member_job(job: Mapping[str, Any], parameters: Mapping[str, Value]) -> dict[str, Any]:
    """The document of a member's job: *job* with ``{name}`` filled in in command and variables.

    Other braces stay as they are, since programs and JSON have them, too. The name stays the
    array's: by it and the image runs are compared.
    """

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(lambda m: str(parameters.get(m[1], m[0])), text)

    command = [filled(each) for each in job["command"]]
    env = {name: filled(value) for name, value in (job.get("env") or {}).items()}
    return {**job, "command": command, "env": env}


def member_name(name: str, index: int) -> str:
    """Name of a member of the array called *name*; no longer than a name may be."""
    return f"{name[:57]}-{index}"


_KEY = re.compile(r"headway-array:([0-9a-f-]{36}):([0-9]{1,9})")


def member_key(array_id: str, index: int) -> str:
    """The key under which the run of a member is made: twice with one key gives one run.

    The gateway puts a team in front of the keys of users, so that none of theirs looks so.
    """
    return f"headway-array:{array_id}:{index}"


def member_of(key: str | None) -> tuple[str, int] | None:
    """Array and index of the member whose run was made under *key*; None for any other run."""
    found = _KEY.fullmatch(key or "")
    return None if found is None else (found[1], int(found[2]))


def take_array(document: Document) -> Array | None:
    """The array of a job's *document*, which is taken out of it; None where it has none.

    Raises:
        InvalidInput: Something is wrong with it.
    """
    given = document.values.pop("array", None)
    if given is None:
        return None
    try:
        return read_array(given)
    except Refused as refused:
        path = ("array", *refused.path)
        value = HIDDEN if refused.hidden else value_at(given, refused.path)
        where = document.place(path)
        raise InvalidInput(dotted(path), value, refused.allowed, where=where) from None


def read_array(given: object) -> Array:
    """An array as a person wrote it, or as `Array.document` did.

    Raises:
        Refused: Something is wrong with it.
    """
    if not isinstance(given, Mapping):
        raise Refused(_GIVE)
    for key in given:
        if key not in ("parameters", "members", "at_most"):
            raise Refused("an array has parameters or members, and at_most", str(key))
    with below("at_most"):
        most = given.get("at_most")
        at_most = None if most is None else _AT_MOST.read(most)
    parameters, members = given.get("parameters"), given.get("members")
    if (parameters is None) == (members is None):
        raise Refused("give either parameters, for every combination, or members, one by one")
    if parameters is not None:
        with below("parameters"):
            array = Array(dict(_grid(parameters)), at_most=at_most)
    else:
        with below("members"):
            array = Array({}, tuple(_rows(members)), at_most)
    if not 1 <= array.size <= MAX_MEMBERS:
        raise Refused(f"give at most {MAX_MEMBERS:,} members; these are {array.size:,}")
    return array


def _grid(given: object) -> Iterator[tuple[str, tuple[Value, ...]]]:
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, list) or not 1 <= len(pairs) <= _MAX_PARAMETERS:
        raise Refused(f"give 1 to {_MAX_PARAMETERS} parameters, such as lr: [0.1, 0.01]")
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise Refused("give each parameter with its values, such as lr: [0.1, 0.01]")
    _check_names([name for name, _ in pairs])
    for name, values in pairs:
        with below(name):
            yield name, tuple(_values(values))


def _values(given: object) -> Iterator[Value]:
    span = _RANGE.fullmatch(given) if isinstance(given, str) else None
    if span is not None:
        first, last = int(span[1]), int(span[2])
        if not 0 <= last - first < MAX_MEMBERS:
            most = f"of at most {MAX_MEMBERS:,} numbers"
            raise Refused(f"give a range from a smaller number to a larger one, {most}: 1..5")
        yield from range(first, last + 1)
        return
    values = given if isinstance(given, list | tuple) else [given]
    if not 1 <= len(values) <= MAX_MEMBERS:
        raise Refused(_GIVE_VALUES)
    for position, value in enumerate(values):
        with below(*((position,) if values is given else ())):
            if isinstance(value, str) and _MEANT_AS_RANGE.fullmatch(value):
                raise Refused(f"{_GIVE_VALUES}, of at most {MAX_MEMBERS:,} numbers and alone")
            yield _value(value)


def written(values: Sequence[Value]) -> str | list[Value]:
    """*values* as a person writes them; whole numbers one after another as their range."""
    first = values[0]
    if isinstance(first, int) and len(values) > 2:
        last = first + len(values) - 1
        if list(values) == list(range(first, last + 1)):
            return f"{first}..{last}"
    return list(values)


def _rows(given: object) -> Iterator[Mapping[str, Value]]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MAX_MEMBERS:
        raise Refused(f"give a list of 1 to {MAX_MEMBERS:,} members, such as [{{lr: 0.1}}]")
    for position, row in enumerate(given):
        with below(position):
            if not isinstance(row, Mapping) or not 1 <= len(row) <= _MAX_PARAMETERS:
                raise Refused(f"give 1 to {_MAX_PARAMETERS} parameters, such as {{lr: 0.1}}")
            _check_names(list(row))
            found = {}
            for name, value in row.items():
                with below(name):
                    found[name] = _value(value)
            yield found


def _check_names(names: list[Any]) -> None:
    upper = [str(name).upper() for name in names]
    for name in names:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise Refused("give names of letters, digits and underscores", str(name))
        if name.upper() in _OURS:
            raise Refused(f"{PREFIX}{name.upper()} is headway's own; give another name", name)
        if upper.count(name.upper()) > 1:
            raise Refused("give each parameter once; capitals make no difference", name)


def _value(given: object) -> Value:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise Refused("give a number, or text in quotes")
    if isinstance(given, str):
        text = checked_text(given, limit=_MAX_CHARACTERS)
        if SECRET_TEXT.search(text):
            raise Refused("it looks like a secret; name a block in secrets instead", hidden=True)
        return text
    if not isfinite(given) or abs(given) >= 2**63:
        raise Refused("give a number below 2^63")
    return given


def array_words(words: tuple[str, ...]) -> dict[str, Any]:
    """The array that the command line's ``lr=0.1,0.01 seed=1..5`` describes, as plain data.

    Raises:
        InvalidInput: One of *words* is no parameter with its values.
    """
    parameters: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not text or name in parameters:
            raise InvalidInput("--array", word, "give each parameter once, such as lr=0.1,0.01")
        ranged = _MEANT_AS_RANGE.fullmatch(text) is not None
        parameters[name] = text if ranged else [_number(part) for part in text.split(",")]
    return {"parameters": parameters}


def _number(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
