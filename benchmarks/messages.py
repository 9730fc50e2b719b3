"""List every text that headway may show somebody, with its file and line.

PYTHONPATH=. python benchmarks/messages.py [WORD …]

From the code: lines of errors, what is raised, printed, warned or logged, and all texts of the
modules that are nothing but advice. With WORDs only texts that have one of them, to see where a
word that is not in the glossary still stands.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "headway"
TOLD = frozenset(
    {"echo", "confirm", "say", "tell", "fail", "warn", "warning", "error", "info", "exception"}
    | {"InvalidInput", "Refused", "Finding", "Refuse", "UsageError", "BadParameter"}
)
"""Functions and classes whose texts somebody reads, beside whatever is raised."""
ADVICE = frozenset({"policy/reasons.py", "policy/why.py", "admin/doctor.py"})
"""Modules whose every text is shown."""
_SENTENCE = re.compile(r"\w+[^\w]+\w+")


class Message(NamedTuple):
    """A text, and where it stands."""

    file: str
    line: int
    text: str


def messages_in(source: str, file: str) -> list[Message]:
    """The texts of *source*, in its order; values stand in them as ``{name}``."""
    tree = ast.parse(source)
    shown = tree.body if file in ADVICE else list(_shown(tree))
    found = {Message(file, line, text) for node in shown for line, text in _texts(node)}
    return sorted(found - {Message(file, line, text) for line, text in _docstrings(tree)})


def all_messages() -> Iterator[Message]:
    """Those of the whole package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from messages_in(path.read_text(), path.relative_to(PACKAGE).as_posix())


def _shown(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.expr() as raised):
                yield raised
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in TOLD:
                yield node
            case ast.Assign(targets=[ast.Name("line" | "allowed" | "advice")], value=said):
                yield said


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The outermost texts below *node* that have two words at least."""
    match node:
        case ast.Constant(str(text)):
            said = " ".join(text.split())
        case ast.JoinedStr():
            said = " ".join(_written(node).split())
        case _:
            for below in ast.iter_child_nodes(node):
                yield from _texts(below)
            return
    if _SENTENCE.search(said):
        yield node.lineno, said


def _written(text: ast.JoinedStr) -> str:
    parts = (
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in text.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )
    return "".join(parts)


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str())):
                yield from _texts(node)


def main(words: Sequence[str]) -> None:
    """Print them, a file's below its name."""
    file = ""
    for each in all_messages():
        if words and not any(re.search(rf"\b{re.escape(word)}", each.text) for word in words):
            continue
        if each.file != file:
            file = each.file
            sys.stdout.write(f"\n{file}\n")
        sys.stdout.write(f"{each.line:5}  {each.text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
