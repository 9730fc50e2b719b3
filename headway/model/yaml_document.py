"""YAML or JSON text as plain data that knows the line of every value.

Read as YAML 1.2, of which JSON is a part, and only what a person can check by
reading: no anchors, aliases, tags or merge keys, no key twice, no deep nesting.
So nothing multiplies, and nothing in it can run.
"""

import re
from collections.abc import Iterator
from typing import Any, Self

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

from headway.errors import InvalidInput
from headway.model.document import HIDDEN, Document, Path, Word, dotted
from headway.model.job_rules import may_be_secret
from headway.units import KIB, format_size


class WrittenFloat(float):
    """A number that knows how it was written: ``3.10`` is not ``3.1`` to a program."""

    def __new__(cls, text: str) -> Self:
        """The number in *text*."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


MAX_TEXT_BYTES = 256 * KIB
MAX_DEPTH = 20
MAX_VALUES = 6_000
"""In one document: what a job has whose lists are all as long as they may be."""

# A number is what JSON calls one. 010, 0x10, 1_000 and .inf stay text: whether
# they are 8 or 10 is nothing to guess.
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,5})?")
_TAG = "tag:yaml.org,2002:"


def read_document(text: str | bytes, filename: str) -> Document:
    """Read *text*, whose messages name *filename*.

    Raises:
        InvalidInput: It is too large, not UTF-8, not YAML, or uses what is
            not allowed here; with the line.
    """
    decoded = _decoded(text, filename)
    yaml = YAML(typ="safe", pure=True)
    yaml.version = "1.2"
    yaml.Scanner, yaml.Composer = _ShallowScanner, _PlainComposer
    try:
        root = yaml.compose(decoded)
        places: dict[Path, str] = {(): f"{filename}:1"}
        values = None if root is None else _plain(root, (), places, filename)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refused(decoded, mark.line if mark else 0, str(error.problem), filename) from None
    except ReaderError as error:
        line = decoded.count("\n", 0, error.position)
        problem = f"it has the character U+{_code(error.character):04X}, which cannot stand there"
        raise _refused(decoded, line, problem, filename) from None
    except (YAMLError, ValueError, RecursionError, LookupError) as error:
        # Left over: %YAML directives with wild numbers and the like.
        raise _refused(decoded, 0, type(error).__name__, filename) from None
    return Document(values, places)


def _decoded(text: str | bytes, filename: str) -> str:
    # A str may hold lone surrogates; the reader refuses them with their line.
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_TEXT_BYTES:
        largest = format_size(MAX_TEXT_BYTES)
        value = Word(f"more than {largest} of text")
        raise InvalidInput("job", value, f"give at most {largest}", where=filename)
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        wrong = raw[error.start : error.start + 8]
        raise InvalidInput(
            "job", wrong, "save the file as UTF-8", where=f"{filename}:{line}"
        ) from None


def _code(character: str | int) -> int:
    return character if isinstance(character, int) else ord(character)


def _refused(text: str, line: int, problem: str, filename: str) -> InvalidInput:
    lines = text.split("\n")
    wrong = lines[min(line, len(lines) - 1)].strip()
    value = HIDDEN if may_be_secret(wrong, wrong) else wrong
    words = "".join(c if c.isprintable() else "?" for c in problem)[:120]
    return InvalidInput(
        "job", value, f"give valid YAML or JSON: {words}", where=f"{filename}:{line + 1}"
    )


class _Unwanted(MarkedYAMLError):
    """YAML allows it, a job does not."""

    def __init__(self, problem: str, mark: StringMark | None) -> None:
        super().__init__(None, None, problem, mark)


class _ShallowScanner(Scanner):
    """Stops where brackets or dashes nest too deep.

    The scanner looks a thousand characters ahead for the end of each, before the composer
    sees the first: a thousand open brackets cost it a second.
    """

    def fetch_flow_collection_start(self, *args: Any, **more: Any) -> None:
        """An opening bracket."""
        self._check_depth(len(self.flow_context))
        super().fetch_flow_collection_start(*args, **more)

    def add_indent(self, column: int) -> bool:
        """A line that begins further to the right."""
        self._check_depth(len(self.indents))
        return bool(super().add_indent(column))

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            problem = f"nest at most {MAX_DEPTH} levels deep"
            raise _Unwanted(problem, self.reader.get_mark())


class _PlainComposer(Composer):
    """Builds the tree, and stops at the first thing that is not plain data."""

    level = 0
    """Not `depth`, which ruamel counts itself."""
    seen = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One node and what is below it."""
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise _Unwanted("write values out, without & and *", event.start_mark)
        if getattr(event, "ctag", None) is not None:
            raise _Unwanted("write values without ! tags", event.start_mark)
        if self.level >= MAX_DEPTH:
            raise _Unwanted(f"nest at most {MAX_DEPTH} levels deep", event.start_mark)
        self.seen += 1
        if self.seen > MAX_VALUES:
            raise _Unwanted(f"give at most {MAX_VALUES:,} values", event.start_mark)
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


def _plain(node: Node, path: Path, places: dict[Path, str], filename: str) -> Any:
    places.setdefault(path, f"{filename}:{node.start_mark.line + 1}")
    if isinstance(node, MappingNode):
        return dict(_entries(node, path, places, filename))
    if isinstance(node, SequenceNode):
        return [
            _plain(item, (*path, position), places, filename)
            for position, item in enumerate(node.value)
        ]
    return _scalar(str(node.tag).removeprefix(_TAG), str(node.value))


def _entries(
    node: MappingNode, path: Path, places: dict[Path, str], filename: str
) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, ScalarNode):
            raise _Unwanted("give keys that are plain words", key_node.start_mark)
        key = str(key_node.value)
        line = key_node.start_mark.line + 1
        where = f"{filename}:{line}"
        if key in seen:
            allowed = f"give it once; the first is in line {seen[key]}"
            raise InvalidInput(dotted((*path, key)), Word("a second value"), allowed, where=where)
        seen[key] = line
        places[(*path, key)] = where
        yield key, _plain(value_node, (*path, key), places, filename)


def _scalar(kind: str, text: str) -> Any:
    """A scalar by YAML 1.2's core schema; what is no plain number stays text."""
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "float" and _DECIMAL.fullmatch(text):
        value = WrittenFloat(text)
        return value if abs(value) < float("inf") else text
    return _joined(text)


def _joined(text: str) -> str:
    """*text* with the two halves of a JSON escape joined to the character they mean."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return text
