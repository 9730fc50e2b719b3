"""The numbers that a script's own options have: what a command gives by a short name, and defaults.

Of argparse's ``add_argument``, click's ``option``, and the classes and functions whose fields and
parameters tyro, transformers, jsonargparse, simple_parsing, Fire and Typer make options of, as they
stand in the script's text; it is not run. So are constants that say how often a loop goes round.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from typing import NamedTuple

from headway.code.documents import Documents
from headway.estimate.options import (
    AMOUNTS,
    EPISODES,
    EPOCHS,
    ITERATIONS,
    last_part,
    number_of,
    options_of,
)

_DECLARE = frozenset({"add_argument", "option"})
_OF_CODE = frozenset({
    "tyro.cli", "HfArgumentParser", "transformers.HfArgumentParser", "jsonargparse.CLI",
    "jsonargparse.auto_cli", "CLI", "auto_cli", "simple_parsing.parse", "fire.Fire", "Fire",
    "typer.run",
})  # fmt: skip
"""What makes options of the fields or parameters of what it is given …"""
_OF_FUNCTIONS = frozenset({"fire.Fire", "Fire", "typer.run"})
"""… and of a class otherwise than of its fields."""
_BARS = frozenset({"tqdm", "track", "progress_bar"})
_SURELY = re.compile(r"(?:max|total)_")
"""Without it, steps that a script has by default may as well be those of a rollout or a sampler."""
_MOST = 200
"""A script that declares more options has no list of them, but a generator."""
_ELSEWHERE = re.compile(
    r"\b(?:add_subparsers|add_parser|set_defaults|exec)\(|\b(?:globals|vars|locals)\(\)"
    r"|\bparse_(?:json_file|yaml_file|dict)\(|@\w+\.group\b"
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
    made_of, of_functions = set[str](), set[str]()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        function = _dotted(call.func)
        if function in _OF_CODE:
            (of_functions if function in _OF_FUNCTIONS else made_of).update(_made_of(call))
        if function.rpartition(".")[2] in _DECLARE:
            yield from _argument(call)
    yield from _constants(tree)
    for each in tree.body:
        if isinstance(each, ast.FunctionDef) and each.name in made_of | of_functions:
            yield from _of_fields(_parameters(each))
        elif isinstance(each, ast.ClassDef) and each.name in made_of:
            yield from _of_fields(_fields(each))


def _argument(call: ast.Call) -> Iterator[_Declared]:
    said = [each.value for each in call.args if isinstance(each, ast.Constant)]
    names = [each for each in said if isinstance(each, str) and each.startswith("-")]
    long = next((each for each in names if each.startswith("--")), None)
    if long is not None:
        stripped = dict.fromkeys(each.lstrip("-") for each in (long, *names))
        values = [each.value for each in call.keywords if each.arg == "default"]
        yield _Declared(list(stripped), _number(values[0]) if values else None)


def _of_fields(fields: Iterable[tuple[str, ast.expr]]) -> Iterator[_Declared]:
    for name, value in fields:
        yield _Declared([name.replace("_", "-"), name], _number(value))


def _made_of(call: ast.Call) -> set[str]:
    """What *call* makes options of; nothing of what it may choose from, or sets defaults of."""
    if not call.args or any(each.arg == "default" for each in call.keywords):
        return set()
    first, is_parser = call.args[0], _dotted(call.func).endswith("HfArgumentParser")
    several = first.elts if is_parser and isinstance(first, ast.Tuple | ast.List) else [first]
    return {each.id for each in several if isinstance(each, ast.Name)}


def _constants(tree: ast.Module) -> Iterator[_Declared]:
    """``EPOCHS = 10``, set there alone, where a loop goes over ``range(EPOCHS)``.

    Iterations only of a loop that is in no other and in no function, which goes round once.
    """
    bound: Counter[str] = Counter()
    counted = {_counted(each) for each in ast.walk(tree) if isinstance(each, ast.For)}
    once = {_counted(each) for each in tree.body if isinstance(each, ast.For)}
    for each in ast.walk(tree):
        if isinstance(each, ast.alias):
            bound[(each.asname or each.name)] += 1
        elif isinstance(each, ast.arg):
            bound[each.arg] += 1
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            bound[each.id] += 1
    for each in tree.body:
        if not isinstance(each, ast.Assign) or not isinstance(each.targets[0], ast.Name):
            continue
        name = each.targets[0].id
        last = last_part(name)
        is_used = name in once if last in ITERATIONS else name in counted and last in AMOUNTS
        if is_used and bound[name] == 1 and not bound["*"]:
            yield _Declared([name], _number(each.value))


def _counted(loop: ast.For) -> str:
    """``EPOCHS`` of a loop over ``range(EPOCHS)`` or ``range(1, EPOCHS + 1)``; empty for others."""
    call = loop.iter
    if isinstance(call, ast.Call) and _dotted(call.func).rpartition(".")[2] in _BARS and call.args:
        call = call.args[0]
    if isinstance(call, ast.Call) and _dotted(call.func) in ("range", "trange"):
        match call.args:
            case [ast.Name(id=name)] | [ast.Constant(value=0), ast.Name(id=name)]:
                return name
            case [ast.Constant(value=1), ast.BinOp(ast.Name(id=name), ast.Add(), ast.Constant(1))]:
                return name
    return ""


def _dotted(function: ast.expr) -> str:
    """``add_argument`` of whatever it is a method of, ``tyro.cli`` of a name's."""
    if isinstance(function, ast.Attribute):
        of = function.value.id if isinstance(function.value, ast.Name) else ""
        return f"{of}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _fields(of: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Those that have a default."""
    for each in of.body:
        if isinstance(each, ast.AnnAssign) and each.value and isinstance(each.target, ast.Name):
            yield each.target.id, each.value


def _parameters(of: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Those that have a default."""
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
