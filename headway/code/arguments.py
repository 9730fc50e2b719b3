"""The numbers that a script's own options have: what a command gives by a short name, and defaults.

Of argparse's ``add_argument`` and click's ``option``, as they stand in the script's text; it is
not run.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from headway.code.documents import Documents
from headway.estimate.options import AMOUNTS, EPISODES, EPOCHS, last_part, number_of, options_of

_DECLARE = frozenset({"add_argument", "option"})
_SURELY = re.compile(r"(?:max|total)_")
"""Without it, steps that a script has by default may as well be those of a rollout or a sampler."""
_GLUED = re.compile(r"-([A-Za-z])([0-9][0-9_.eE+-]*)")


class _Declared(NamedTuple):
    names: Sequence[str]
    """Without their dashes, the long one first."""
    default: float | None


def arguments_of(files: Documents, words: Sequence[str]) -> Mapping[str, float]:
    """What the options of the script that *words* start have, by their long names.

    Of one that is declared twice, as by two subcommands, the default is known only where both have
    the same.
    """
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if at is None:
        return {}
    declared = list(_declared(files.text(words[at]) or ""))
    by_name: dict[str, set[float | None]] = {}
    for each in declared:
        by_name.setdefault(each.names[0], set()).add(each.default)
    found = {
        name: default
        for name, (default, *others) in ((name, list(each)) for name, each in by_name.items())
        if not others and default is not None and _may_count(name)
    }
    for given, text in _given(words[at + 1 :]):
        meant = {each.names[0] for each in declared if given in each.names}
        if not meant and len(given) > 1:  # argparse takes the beginning of a name
            meant = {name for name in by_name if name.startswith(given)}
        if len(meant) == 1:
            name = meant.pop()
            found.pop(name, None)
            with suppress(ValueError):
                found[name] = float(text)
    return found


def _may_count(name: str) -> bool:
    last = last_part(name)
    return last not in AMOUNTS or last in EPOCHS | EPISODES or bool(_SURELY.match(last))


def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and their values, also ``-e6``."""
    yield from options_of(words)
    for word in words:
        if glued := _GLUED.fullmatch(word):
            yield glued[1], glued[2]


def _declared(text: str) -> Iterator[_Declared]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        if getattr(call.func, "attr", getattr(call.func, "id", "")) not in _DECLARE:
            continue
        said = [each.value for each in call.args if isinstance(each, ast.Constant)]
        names = [each for each in said if isinstance(each, str) and each.startswith("-")]
        long = next((each for each in names if each.startswith("--")), None)
        if long is not None:
            stripped = dict.fromkeys(each.lstrip("-") for each in (long, *names))
            yield _Declared(list(stripped), _default(call))


def _default(call: ast.Call) -> float | None:
    for each in call.keywords:
        if each.arg == "default":
            with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                return number_of(ast.literal_eval(each.value))
    return None
