"""Text becomes a job, or one line that says what to correct and where.

YAML is read as nodes first: so a duplicate key is seen, an alias cannot blow
up, and every message knows its line.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.units import KIB, format_size

MAX_TEXT_BYTES = 256 * KIB
MAX_DEPTH = 20

Path = tuple[str | int, ...]


def parse_job(
    text: str | bytes, *, filename: str = "job.yaml", overrides: Sequence[str] = ()
) -> TrainingJob:
    """The job that *text*, YAML or JSON, describes.

    Args:
        text: The document.
        filename: Named in messages, with the line.
        overrides: ``key.sub=value`` pairs that win over the document; the
            value is read as YAML.

    Raises:
        InvalidInput: Anything is wrong with it.
    """
    document, lines = _load(text, filename)
    for override in overrides:
        _override(document, override)
        lines = {path: line for path, line in lines.items() if path != _path_of(override)}
    return _validated(document, lines, filename)


def job_from_document(document: object) -> TrainingJob:
    """The job that plain data describes, such as a flow's parameter.

    Raises:
        InvalidInput: Anything is wrong with it.
    """
    if isinstance(document, TrainingJob):
        return document
    if not isinstance(document, Mapping):
        raise InvalidInput("job", document, "give a mapping with name, image and command")
    return _validated(dict(document), {}, "")


def _validated(document: dict[str, Any], lines: Mapping[Path, int], filename: str) -> TrainingJob:
    try:
        return TrainingJob.model_validate(document)
    except ValidationError as error:
        raise _explained(error, document, lines, filename) from None


# -- reading ---------------------------------------------------------------------------


def _load(text: str | bytes, filename: str) -> tuple[dict[str, Any], dict[Path, int]]:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_TEXT_BYTES:
        allowed = f"give a file of at most {format_size(MAX_TEXT_BYTES)}"
        raise InvalidInput("job", format_size(len(raw)), allowed, where=filename)
    try:
        decoded = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "job", raw[error.start : error.start + 8], "give a file in UTF-8", where=filename
        ) from None
    yaml = YAML(typ="safe", pure=True)
    yaml.version = "1.2"
    try:
        root = yaml.compose(decoded)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{filename}:{mark.line + 1}" if mark is not None else filename
        raise InvalidInput("job", str(error.problem), "give valid YAML", where=where) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "job", str(error).splitlines()[0], "give valid YAML or JSON", where=filename
        ) from None
    if not isinstance(root, MappingNode):
        what = "nothing" if root is None else f"a {root.id}"
        raise InvalidInput(
            "job", what, "give a mapping with name, image and command", where=filename
        )
    lines: dict[Path, int] = {}
    seen: set[int] = set()
    document = _plain(root, (), lines, seen, filename)
    return document, lines


def _plain(node: Node, path: Path, lines: dict[Path, int], seen: set[int], filename: str) -> Any:
    """The node as plain data; every node at most once, so that no alias multiplies."""
    line = node.start_mark.line + 1
    where = f"{filename}:{line}"
    lines.setdefault(path, line)
    if id(node) in seen:
        raise InvalidInput(_dotted(path), "an alias", "write the value out", where=where)
    seen.add(id(node))
    if len(path) > MAX_DEPTH:
        raise InvalidInput(
            _dotted(path[:3]), "…", f"nest at most {MAX_DEPTH} levels deep", where=where
        )
    if isinstance(node, MappingNode):
        return dict(_items(node, path, lines, seen, filename))
    if isinstance(node, SequenceNode):
        return [_plain(it, (*path, i), lines, seen, filename) for i, it in enumerate(node.value)]
    return _scalar(node, path, where)


def _items(
    node: MappingNode, path: Path, lines: dict[Path, int], seen: set[int], filename: str
) -> Iterator[tuple[str, Any]]:
    keys: set[str] = set()
    for key_node, value_node in node.value:
        where = f"{filename}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            raise InvalidInput(
                _dotted(path), "a key that is no plain word", "write the keys out", where=where
            )
        key = str(key_node.value)
        if key in keys:
            raise InvalidInput(_dotted((*path, key)), "twice", "give each key once", where=where)
        keys.add(key)
        lines[(*path, key)] = key_node.start_mark.line + 1
        yield key, _plain(value_node, (*path, key), lines, seen, filename)


def _scalar(node: Node, path: Path, where: str) -> Any:
    """A scalar by the rules of YAML 1.2's core schema, which are JSON's and a little more."""
    text = node.value
    kind = str(node.tag).rsplit(":", 1)[-1]
    if getattr(node, "style", None) in {"'", '"', "|", ">"} or kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            return int(text.replace("_", ""), 0) if not text.lstrip("+-").isdigit() else int(text)
        if kind == "float":
            return float(
                text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
            )
    except ValueError:
        pass  # such as 4300 digits; it is no number then
    else:
        return text  # a date or a tag of YAML's own: the model says what it wants
    raise InvalidInput(_dotted(path), text, "give a plain number or text", where=where)


def _path_of(override: str) -> Path:
    return tuple(override.partition("=")[0].strip().split("."))


def _override(document: dict[str, Any], override: str) -> None:
    key, sign, value = override.partition("=")
    if not sign or not key.strip():
        raise InvalidInput("--set", override, "give key=value, such as resources.cpus=2")
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(value)
    except (YAMLError, ValueError) as error:
        raise InvalidInput("--set", override, "give a value in YAML after the =") from error
    parsed = None if node is None else _plain(node, (), {}, set(), "--set")
    *parents, last = _path_of(override)
    place = document
    for parent in parents:
        inner = place.setdefault(str(parent), {})
        if not isinstance(inner, dict):
            raise InvalidInput("--set", override, f"{parent} has no keys below it")
        place = inner
    place[str(last)] = parsed


# -- explaining ------------------------------------------------------------------------


def _explained(
    error: ValidationError, document: object, lines: Mapping[Path, int], filename: str
) -> InvalidInput:
    """The first problem, in the order of the document, as one line."""
    problems = error.errors(include_url=False)
    problem = min(problems, key=lambda it: lines.get(_known_path(it["loc"], document), 10**9))
    path = _known_path(problem["loc"], document)
    message = problem["msg"].removeprefix("Value error, ")
    kind = problem["type"]
    value = _value_at(document, path)
    if kind == "extra_forbidden":
        path = (*path, str(problem["loc"][-1])) if path != tuple(problem["loc"]) else path
        message, value = _unknown_key(path), "an unknown key"
    elif kind == "missing":
        path = (*path, str(problem["loc"][-1]))
        message, value = "it is required", "nothing"
    elif kind == "value_error":
        path, value, message = _from_validator(path, value, message)
    else:
        message = _allowed(problem, message)
    if path[:1] == ("env",):
        value = "…"  # it may be a secret that does not belong there
    line = _line_of(path, lines)
    where = f"{filename}:{line}" if line else filename
    return InvalidInput(_dotted(path), value, message, where=where)


def _known_path(loc: Sequence[str | int], document: object) -> Path:
    """The part of pydantic's location that exists in the document."""
    path: list[str | int] = []
    place: Any = document
    for part in loc:
        try:
            place = place[part]
        except (KeyError, IndexError, TypeError):
            break
        path.append(part)
    return tuple(path)


def _value_at(document: object, path: Path) -> object:
    place: Any = document
    for part in path:
        place = place[part]
    return place


def _from_validator(path: Path, value: object, message: str) -> tuple[Path, object, str]:
    """A validator's own message may name a key below *path*: ``ports: got …; give …``."""
    name, sign, rest = message.partition(": ")
    words = name.split(".")
    if not sign or not all(word.replace("_", "").isalnum() for word in words):
        return path, value, message
    inner = (*path, *words)
    if isinstance(value, Mapping):
        found: Any = value
        for word in words:
            found = found.get(word) if isinstance(found, Mapping) else None
        value = found
    got, semicolon, allowed = rest.partition("; ")
    if semicolon and got.startswith("got "):
        return inner, value, allowed
    return inner, value, rest


def _unknown_key(path: Path) -> str:
    known = _fields_at(path[:-1])
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}known keys here: {', '.join(known)}"


def _fields_at(path: Path) -> list[str]:
    model: type[BaseModel] = TrainingJob
    for part in path:
        annotation = model.model_fields[str(part)].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)


_PLAIN = {
    "int_type": "give a whole number",
    "float_type": "give a number",
    "string_type": "give text; put it in quotes",
    "bool_type": "give true or false",
    "list_type": 'give a list, such as ["python", "train.py"]',
    "dict_type": "give keys and values",
    "model_type": "give keys and values",
    "model_attributes_type": "give keys and values",
    "finite_number": "give a finite number",
    "int_from_float": "give a whole number",
    "string_unicode": "give text that is valid Unicode",
}


_BOUNDS = {
    "greater_than_equal": "give at least {ge}",
    "greater_than": "give more than {gt}",
    "less_than_equal": "give at most {le}",
    "string_too_short": "give at least one character",
    "too_short": "give at least one",
    "string_too_long": "give at most {max_length} characters",
    "too_long": "give at most {max_length}",
    "enum": "give {expected}",
    "literal_error": "give {expected}",
}


def _allowed(problem: Mapping[str, Any], message: str) -> str:
    context = problem.get("ctx") or {}
    kind = problem["type"]
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"give text like {context['pattern']}")
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    return _PLAIN.get(kind, message[:1].lower() + message[1:])


_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$": (
        "give 1 to 63 letters, digits, dots, dashes or underscores; the first a letter or digit"
    ),
    r"^[0-9a-f]{64}$": "give the 64 hexadecimal digits that sha256sum prints",
}


def _line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    for length in range(len(path), -1, -1):
        if path[:length] in lines and (length or len(path) <= 1):
            return lines[path[:length]]
    return None


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "job"
