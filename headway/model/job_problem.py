"""What is wrong with a job, in one line: pydantic's findings as our error."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from headway.errors import InvalidInput
from headway.model.document import HIDDEN, NOTHING, Document, Path, dotted, value_at
from headway.model.document_errors import as_one, near_names
from headway.model.job_fields import Refused
from headway.model.job_rules import may_be_secret

_MOST_TOLD = 10


@dataclass(frozen=True)
class _Finding:
    """One finding: path, value, and what is allowed."""

    path: Path
    value: object
    allowed: str
    unknown_key: bool = False

    def rank(self, lines: Sequence[Path]) -> tuple[bool, bool, int]:
        """Smaller is more telling."""
        position = lines.index(self.path) if self.path in lines else len(lines)
        return not self.unknown_key, self.value is NOTHING, position


def explain(
    error: ValidationError, document: Document, model: type[BaseModel], *, inside: Path = ()
) -> InvalidInput:
    """The findings about *document*, which was read as *model*, the most telling one first.

    *inside* is the group's name, where *document* is but a part of a job. A
    key that does not exist comes first: it explains the one that is missing.
    """
    found = [_read(details, document, model) for details in error.errors(include_url=False)]
    lines = list(document.places)
    first, *others = sorted(found, key=lambda it: it.rank(lines))
    if first.unknown_key:
        others = [each for each in others if each.value is not NOTHING]
    return as_one([_told(each, document, inside) for each in (first, *others[: _MOST_TOLD - 1])])


def _told(finding: _Finding, document: Document, inside: Path) -> InvalidInput:
    field, where = dotted((*inside, *finding.path)), document.place(finding.path)
    return InvalidInput(field, finding.value, finding.allowed, where=where)


def _read(details: Any, document: Document, model: type[BaseModel]) -> _Finding:
    path: Path = tuple(details["loc"])
    cause = (details.get("ctx") or {}).get("error")
    if isinstance(cause, Refused):
        path = (*path, *cause.path)
        value = HIDDEN if cause.hidden else value_at(document.values, path)
        return _Finding(path, value, cause.allowed)
    value = value_at(document.values, path)
    if details["type"] == "extra_forbidden":
        if may_be_secret(str(path[-1]), value):
            value = HIDDEN
        return _Finding(path, value, _unknown_key(path, model), unknown_key=True)
    # All that pydantic itself still checks: a group of keys must be a mapping.
    keys = ", ".join(_group(path, model).model_fields)
    return _Finding(path, value, f"give a group of keys: {keys}")


def _group(path: Path, model: type[BaseModel]) -> type[BaseModel]:
    """The model of the group of keys at *path*; *model* itself where there is none."""
    for part in path:
        model = _groups(model).get(str(part), model)
    return model


def _groups(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The fields of *model* that are groups of keys themselves."""
    found = {}
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[name] = kind
    return found


def _unknown_key(path: Path, model: type[BaseModel]) -> str:
    here = list(_group(path[:-1], model).model_fields)
    key = str(path[-1])[:64]
    if near := near_names(key, here):
        meant = " or ".join(dotted((*path[:-1], name)) for name in near)
        return f"no such key; did you mean {meant}?"
    elsewhere = {name: name for name in model.model_fields}
    for group, inner in _groups(model).items():
        elsewhere |= {name: f"{group}.{name}" for name in inner.model_fields}
    near = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.75)
    if near:
        return f"no such key here; did you mean {elsewhere[near[0]]}?"
    return f"no such key; keys here are {', '.join(here)}"
