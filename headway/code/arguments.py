"""The numbers that a script's own options have: what a command gives by a short name, and defaults.

Of argparse's ``add_argument``, click's ``option``, and the classes and functions whose fields and
parameters tyro, transformers, jsonargparse, simple_parsing, Fire and Typer make options of, as they
stand in the script's text; it is not run. So are constants that say how often a loop goes round.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from typing import NamedTuple

from headway.code.documents import Documents
from headway.estimate.options import AMOUNTS, EPISODES, EPOCHS, last_part, number_of, options_of

_DECLARE = frozenset({"add_argument", "option"})
_OF_CODE = frozenset({
    "tyro.cli", "HfArgumentParser", "transformers.HfArgumentParser", "jsonargparse.CLI",
    "jsonargparse.auto_cli", "CLI", "auto_cli", "simple_parsing.parse", "fire.Fire", "Fire",
    "typer.run",
})  # fmt: skip
"""What makes options of the fields or parameters of what it is given."""
_SURELY = re.compile(r"(?:max|total)_")
"""Without it, steps that a script has by default may as well be those of a rollout or a sampler."""
_MOST = 200
"""A script that declares more options has no list of them, but a generator."""
_ELSEWHERE = re.compile(
    r"\b(?:add_subparsers|add_parser|set_defaults|exec)\(|\bglobals\(\)|@\w+\.group\b"
)
"""Defaults of subcommands, of which one runs, or that are given elsewhere."""
_NEXT = frozenset({"&&", "||", ";", "|"})
_GLUED = re.compile(r"-([A-Za-z])([0-9][0-9_.eE+-]*)")


class _Declared(NamedTuple):
    names: Sequence[str]
    """Without their dashes, the long one first."""
    default: float | None


def arguments_of(files: Documents, words: Sequence[str]) -> Mapping[str, float]:
    """What the options of the script that *words* start have, by their long names.

    Of one that is declared twice the default is known only where both are the same; how much there
    is to do by default is not where the script has subcommands.
    """
    scripts = [at for at, word in enumerate(words) if word.endswith(".py")]
    if not scripts:
        return {}
    at, text = scripts[0], files.text(words[scripts[0]]) or ""
    declared = list(islice(_declared(text), _MOST + 1))
    if len(declared) > _MOST:
        return {}
    given_words = takewhile(lambda w: w not in _NEXT, words[at + 1 : [*scripts, len(words)][1]])
    by_name: dict[str, set[float | None]] = {}
    for each in declared:
        by_name.setdefault(each.names[0], set()).add(each.default)
    found = {
        name: default
        for name, (default, *others) in ((name, list(each)) for name, each in by_name.items())
        if not others and default is not None and _may_count(name, text)
    }
    for given, value in _given(list(given_words)):
        meant = {each.names[0] for each in declared if given in each.names}
        if not meant and len(given) > 1:  # argparse takes the beginning of a name
            meant = {name for name in by_name if name.startswith(given)}
        if len(meant) == 1:
            name = meant.pop()
            found.pop(name, None)
            with suppress(ValueError):
                found[name] = float(value)
    return found


def _may_count(name: str, text: str) -> bool:
    """Whether a default of that name says what it seems to, in a script of that *text*."""
    last = last_part(name)
    if last not in AMOUNTS:
        return True
    is_surely = last in EPOCHS | EPISODES or (_SURELY.match(last) and last != "max_iter")
    return bool(is_surely) and not _ELSEWHERE.search(text)


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
    made_of: set[str] = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = _dotted(call.func)
        if function in _OF_CODE:
            made_of |= {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
        if function.rpartition(".")[2] not in _DECLARE:
            continue
        said = [each.value for each in call.args if isinstance(each, ast.Constant)]
        names = [each for each in said if isinstance(each, str) and each.startswith("-")]
        long = next((each for each in names if each.startswith("--")), None)
        if long is not None:
            stripped = dict.fromkeys(each.lstrip("-") for each in (long, *names))
            values = [each.value for each in call.keywords if each.arg == "default"]
            yield _Declared(list(stripped), _number(values[0]) if values else None)
    yield from _constants(tree)
    for each in tree.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name in made_of:
            for name, value in _fields(each):
                yield _Declared([name.replace("_", "-"), name], _number(value))


def _constants(tree: ast.Module) -> Iterator[_Declared]:
    """``EPOCHS = 10``, set there alone, where a loop goes over ``range(EPOCHS)``."""
    loops = [each.iter for each in ast.walk(tree) if isinstance(each, ast.For)]
    calls = [each for loop in loops for each in ast.walk(loop) if isinstance(each, ast.Call)]
    ranges = [each for each in calls if _dotted(each.func) in ("range", ".trange", "trange")]
    counted = {word.id for each in ranges for word in ast.walk(each) if isinstance(word, ast.Name)}
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name | ast.arg)]
    set_ = Counter(
        each.arg if isinstance(each, ast.arg) else each.id
        for each in names
        if isinstance(each, ast.arg) or isinstance(each.ctx, ast.Store)
    )
    for each in tree.body:
        if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], ast.Name):
            continue
        name = each.targets[0].id
        if name in counted and set_[name] == 1 and last_part(name) in AMOUNTS:
            yield _Declared([name], _number(each.value))


def _dotted(function: ast.expr) -> str:
    """``add_argument`` of whatever it is a method of, ``tyro.cli`` of a name's."""
    if isinstance(function, ast.Attribute):
        of = function.value.id if isinstance(function.value, ast.Name) else ""
        return f"{of}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _fields(of: ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Fields or parameters that have a default."""
    if isinstance(of, ast.ClassDef):
        for each in of.body:
            if isinstance(each, ast.AnnAssign) and each.value and isinstance(each.target, ast.Name):
                yield each.target.id, each.value
        return
    asked, given = of.args, of.args.defaults
    named = [*asked.posonlyargs, *asked.args]
    yield from zip((each.arg for each in named[len(named) - len(given) :]), given, strict=True)
    for one, default in zip(asked.kwonlyargs, asked.kw_defaults, strict=True):
        if default is not None:
            yield one.arg, default


def _number(value: ast.expr) -> float | None:
    with suppress(ValueError, SyntaxError, TypeError, OverflowError, RecursionError, MemoryError):
        return number_of(ast.literal_eval(value))
    return None
