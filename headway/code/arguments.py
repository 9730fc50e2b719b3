"""What a script's own parser says of its options: their other names, and what counts without them.

The script is read, never run: calls of `add_argument` (argparse) and `option` (click, typer).
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from headway.code.documents import Documents
from headway.estimate.options import AMOUNTS, last_part, options_of

_CALLS = frozenset({"add_argument", "option", "Option"})


def amounts_of(files: Documents, words: Sequence[str]) -> Mapping[str, float]:
    """How much there is to do in the script that *words* start, by the long names of its options.

    Of an option of which two parsers of the script say different things nothing is taken.
    """
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if at is None:
        return {}
    given, found = dict(options_of(words[at + 1 :])), dict[str, set[float]]()
    for names, default in _options(files.text(words[at]) or ""):
        value = next((given[name] for name in names if name in given), default)
        with suppress(ValueError):
            if last_part(names[-1]) in AMOUNTS:
                found.setdefault(names[-1], set()).add(float(str(value)))
    return {name: each.pop() for name, each in found.items() if len(each) == 1}


def _options(text: str) -> Iterator[tuple[list[str], object]]:
    """Names without dashes, the longest last, and the default of each option."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in _CALLS:
            names = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
            names = sorted((n.lstrip("-") for n in names if n.startswith("-")), key=len)
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            if names:
                yield names, default.value if isinstance(default, ast.Constant) else None
