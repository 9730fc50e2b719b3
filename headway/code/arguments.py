"""What a script's own parser says of its options: their other names, and what counts without them.

The script is read, never run: calls of `add_argument` (argparse) and `option` (click, typer).
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from headway.code.documents import Documents
from headway.estimate.options import AMOUNTS, last_part, options_of

_CALLS = frozenset({"add_argument", "option", "Option"})
_MOST_IMPORTS = 50


def amounts_of(files: Documents, words: Sequence[str]) -> Mapping[str, float]:
    """How much there is to do in the script that *words* start, by the long names of its options.

    Those of the modules of its folder that it imports are its own. Where *words* give one, what
    others are without being given says nothing: it may be another unit's, as among a command's own.
    Of an option of which two parsers say different things nothing is taken.
    """
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if at is None:
        return {}
    given = dict(options_of(words[at + 1 :]))
    script = _tree(files.text(words[at]))
    trees = [script, *(_tree(files.text(name)) for name in _imported(script, words[at]))]
    said: tuple[dict[str, set[float]], ...] = ({}, {})
    for names, default in (option for tree in trees for option in _options(tree)):
        value = next((given[name] for name in names if name in given), None)
        with suppress(ValueError):
            if last_part(names[-1]) in AMOUNTS:
                of = said[value is None].setdefault(names[-1], set())
                of.add(float(str(default if value is None else value)))
    return {name: each.pop() for name, each in (said[0] or said[1]).items() if len(each) == 1}


def _tree(text: str | None) -> ast.AST:
    try:
        return ast.parse(text or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _imported(script: ast.AST, name: str) -> Iterator[str]:
    """Files in which modules that *script* imports may be."""
    modules = [each.module for each in ast.walk(script) if isinstance(each, ast.ImportFrom)]
    for module in dict.fromkeys(filter(None, modules[:_MOST_IMPORTS])):
        yield str(PurePosixPath(name).parent / f"{module.replace('.', '/')}.py")


def _options(tree: ast.AST) -> Iterator[tuple[list[str], object]]:
    """Names without dashes, the longest last, and the default of each option."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in _CALLS:
            names = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
            names = sorted((n.lstrip("-") for n in names if n.startswith("-")), key=len)
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            if names:
                yield names, default.value if isinstance(default, ast.Constant) else None
