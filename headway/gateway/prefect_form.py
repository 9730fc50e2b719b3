"""What Prefect's form sends in the place of plain values.

A field that is written as JSON, and a value with a setting of its own, come wrapped: their kind
stands in the key ``__prefect_kind``, and Prefect's server unwraps them.
"""

from collections.abc import Mapping
from typing import Any

from headway.errors import InvalidInput, NotAllowed
from headway.model.document import Path, dotted
from headway.model.strict_json import read_strict
from headway.model.yaml_document import MAX_DEPTH

_KIND = "__prefect_kind"


def plain_values(value: object, path: Path = ()) -> Any:
    """*value*, which lies at *path* of the form, with all that is wrapped in it unwrapped.

    A field that was left empty is left out.

    Raises:
        InvalidInput: What stands there as JSON is none, or it is too deep.
        NotAllowed: It is a template or a variable: what is in those is the operators'.
    """
    if len(path) > MAX_DEPTH:
        raise InvalidInput(dotted(path[:2]), "deeper", f"nest at most {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        if _KIND in value:
            return _unwrapped(value, path)
        return {
            key: plain_values(below, (*path, key))
            for key, below in value.items()
            if not _is_empty(below)
        }
    if isinstance(value, list):
        return [
            plain_values(below, (*path, position))
            for position, below in enumerate(value)
            if not _is_empty(below)
        ]
    return value


def _is_empty(value: object) -> bool:
    return isinstance(value, Mapping) and _KIND in value and "value" not in value


def _unwrapped(wrapped: Mapping[str, Any], path: Path) -> Any:
    kind, value = wrapped[_KIND], wrapped.get("value")
    if kind not in ("none", "json"):
        name = dotted(path) or "parameters"
        raise NotAllowed(f"{name} is of the kind {kind}; give its value itself, or JSON")
    if kind == "json" and isinstance(value, str):
        try:
            return read_strict(value.encode())
        except InvalidInput as error:
            raise InvalidInput(dotted(path), error.value, error.allowed) from None
    return plain_values(value, (*path, "value"))
