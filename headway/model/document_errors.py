"""What is wrong with a group of a document that a person wrote: all of it, each with its line."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from headway.errors import InvalidInput
from headway.model.document import HIDDEN, NOTHING, Document, Path, Word, dotted, value_at
from headway.model.job_fields import Refused
from headway.model.job_rules import may_be_secret

_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
_NO_GROUP = {"dataclass_type", "model_type", "model_attributes_type", "dict_type", "mapping_type"}


def near_names(name: str, known: Sequence[str]) -> list[str]:
    """Those of *known* that whoever wrote *name* may have meant."""
    return [each for each in known if name in each.split("_")] or difflib.get_close_matches(
        name, known, n=1
    )


def as_one(errors: Sequence[InvalidInput]) -> InvalidInput:
    """The first of *errors*, which says the others, too."""
    errors[0].also = "".join(f". Also wrong: {each}" for each in errors[1:])
    return errors[0]


def errors_in(document: Document, at: Path, kind: Any) -> list[InvalidInput]:
    """What keeps that which is at *at* from being a *kind*: a class of pydantic's, a dataclass.

    A key that it does not have is an error, whatever the class itself does about that.
    """
    values = value_at(document.values, at)
    return [] if values is NOTHING else _errors(document, at, kind, values)


def _errors(document: Document, at: Path, kind: Any, values: object) -> list[InvalidInput]:
    try:
        TypeAdapter(kind).validate_python(values, extra="forbid")
    except ValidationError as error:
        return list(_told(error, document, at, kind))
    except InvalidInput as error:  # of a dataclass, which says the first alone: ask it in parts
        parts = _parts(values)
        found = [each for part in parts for each in _errors(document, at, kind, part)]
        return found or [placed(error, document, (*at, *_only_path(values)))]
    return []


def _parts(values: object) -> list[dict[str, Any]]:
    """*values* in parts that have one key where it first has several."""
    if not isinstance(values, dict):
        return []
    if len(values) > 1:
        return [{key: value} for key, value in values.items()]
    return [{key: part} for key, inner in values.items() for part in _parts(inner)]


def _only_path(values: object) -> Path:
    """The way down *values* to what is in the only group that has no other in it."""
    if not isinstance(values, dict) or len(values) != 1:
        return ()
    ((key, inner),) = values.items()
    return (key, *_only_path(inner))


def placed(error: InvalidInput, document: Document, path: Path) -> InvalidInput:
    """*error* as one of what is at *path*."""
    where = document.place(path)
    return InvalidInput(dotted(path), error.value, error.allowed, where=where)


def _told(
    error: ValidationError, document: Document, at: Path, kind: Any
) -> Iterable[InvalidInput]:
    found: dict[Path, list[str]] = {}
    for details in error.errors(include_url=False):
        path: Path = (*at, *details["loc"])
        cause = (details.get("ctx") or {}).get("error")
        if details["type"] == "default_factory_not_called":  # since another one is wrong
            continue
        if isinstance(cause, Refused):
            path, said = (*path, *cause.path), cause.allowed
        else:
            said = _allowed(details, path[len(at) :], kind)
        while path and path not in document.places:  # the name of a branch, or of what is missing
            path = path[:-1]
        found.setdefault(path, []).append(said)
    for path, words in found.items():
        value = value_at(document.values, path)
        if isinstance(value, dict | list):  # a secret may be in it
            value = Word("a group of keys" if isinstance(value, dict) else "a list")
        elif may_be_secret(str(path[-1]) if path else "", value):
            value = HIDDEN
        allowed = " or ".join(dict.fromkeys(words))
        yield InvalidInput(
            dotted(path) if path else "file", value, allowed, where=document.place(path)
        )


def _allowed(details: Any, path: Path, kind: Any) -> str:
    if details["type"] in _UNKNOWN:
        known = _keys(kind, path[:-1])
        if near := near_names(str(path[-1])[:64], known):
            return f"no such key; did you mean {' or '.join(near)}?"
        return f"no such key; keys here are {', '.join(known)}"
    if details["type"] in _NO_GROUP:
        return f"give a group of keys: {', '.join(_keys(kind, path))}"
    if details["type"] == "missing":
        return f"give {path[-1]}, too"
    said: str = details["msg"].removeprefix("Value error, ")
    return said[:1].lower() + said[1:]


def _keys(kind: Any, path: Path) -> list[str]:
    """Keys of the group at *path* of *kind*."""
    group = TypeAdapter(kind).json_schema()
    named = group.get("$defs", {})
    for part in path:
        group = group.get("properties", {}).get(part) or group.get("additionalProperties") or {}
        group = named[group["$ref"].rpartition("/")[2]] if "$ref" in group else group
    return list(group.get("properties", ()))
