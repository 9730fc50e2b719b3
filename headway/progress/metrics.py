"""Regular expressions for the counts and the metrics of a line."""

import re
import sys
from functools import cache

MAX_METRICS = 32

Number = tuple[slice | str, slice]
"""A metric: where its name stands, or the name where the line does not say it; and where its
number stands."""

NUMBER = r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,5})?"
# No word or name: `user: Nan Li`. What follows may be the name of the next metric.
_NAN = r"-?(?:[Nn]a[Nn]|NAN)(?![\w-]|[ \t]{1,4}+[A-Za-z][\w./@-]{0,47}+(?!\s{0,4}[:=]))"

# Possessive counts ({…}+) and a start at a word's start keep this linear on hostile lines.
PAIR = re.compile(
    r"(?<![\w.@/])"
    r"((?:(?:train|training|val|valid|validation|test|eval|avg|average|lm|learning) )?"
    r"[A-Za-z_][\w./@-]{0,47}+)"
    r"[\"']?\s{0,4}+(?:[:=]\s{0,8}+[\"'\[]?("
    + NUMBER
    + "|"
    + _NAN
    + r")|(?<=\s)([-+]?[0-9]{1,20}\.[0-9]{1,20}"
    r"(?:[eE][-+]?[0-9]{1,3})?))(?![\w.]*[:/]|\.?[0-9])",
    re.ASCII,
)
"""``name: number``, ``name=number`` and ``name 1.5``."""
# Counts, words before a number in a sentence, and places in a program (``solver.cpp:228``).
_NOT_METRIC = re.compile(
    r"epochs?|steps?|iters?|iterations?|it|batch|eta|remaining|v_num|rank|gpu|cuda|total"
    r"|total_\w*(?:steps|iters|iterations)"
    r"|in|after|took|at|of|for|to|is|with|by|from|than|.*(?:\.(?:py|cpp|cc|cu|h)|epoch)"
)


@cache
def counts_pattern(text: str) -> re.Pattern[str]:
    """A regular expression in whose *text* ``%step%`` stands for a number, as a group ``step``.

    ``%epoch_done%`` may have decimals; ``%rest%`` marks a place.
    """
    text = text.replace("%rest%", "(?P<rest>)")
    text = text.replace("%epoch_done%", r"(?P<epoch_done>[0-9]{1,9}(?:\.[0-9]{1,12})?)")
    return re.compile(re.sub(r"%(\w+)%", r"(?P<\1>[0-9]{1,15})", text), re.ASCII)


def spans(match: re.Match[str]) -> dict[str, slice]:
    """Where the named groups of *match* stand that are not empty."""
    return {name: slice(*match.span(name)) for name, text in match.groupdict().items() if text}


STEP = counts_pattern(
    r"(?<![A-Za-z_])(?:[Gg]lobal[_ ]?[Ss]tep|[Ss]tep|STEP|[Ii]ter(?:ations?|s)?|ITER"
    r"|[Uu]pdate|[Bb]atch(?:_idx)?|[Rr]ound)\b(?:\(train\)|-)?[\s:=#\[(|'\"]{0,14}(?:[0-9]{1,12}-)?%step%"
    r"(?:\s{0,3}(?:/|of)\s{0,8}%steps%(?![0-9/]))?(?!\.?[0-9]|[\w%])"
)
"""``step 3``, ``Iteration: 3/100``; not how many of ``iteration 3/4/5``."""

# What a program prints of its own arguments.
_SETTING = re.compile(
    r"\b(?:\w{0,12}batch_size|seed|\w{0,8}workers|weight_decay|momentum|optimizer|resume|arch|gamma"
    r"|dataset|device|dropout|patience|step_size|(?:num_|max_|n_)?epochs|max_steps|warmup\w{0,20}"
    r"|save_\w{1,20}|\w{1,20}_(?:interval|freq|dir|path))['\"]?\s?[=:]"
)


def is_settings(line: str) -> bool:
    """Whether *line* shows a program's own arguments: ``Namespace(lr=0.1, epochs=90, step=30)``."""
    return "Namespace(" in line or len(_SETTING.findall(line)) > 1


def step_of_run(line: str, begin: int = 0, end: int = sys.maxsize) -> dict[str, slice]:
    """Where the iteration stands in a line that tells the step of the epoch too; or nothing.

    ``Step: 16125. Epoch: 55/100. Iteration: 11/293.``: what has far more digits is of the run.
    """
    steps = sorted(STEP.finditer(line, begin, end), key=lambda match: len(match["step"]))
    if not steps or steps[-1]["steps"] or len(steps[-1]["step"]) < len(steps[0]["step"]) + 2:
        return {}
    return {"iteration": slice(*steps[-1].span("step"))}


def numbers_in(
    shape: str,
    begin: int = 0,
    end: int = sys.maxsize,
    *,
    pattern: re.Pattern[str] = PAIR,
    space: str = "_",
) -> list[Number]:
    """The metrics in lines of a shape.

    Args:
        shape: A line with each digit as 0.
        begin: Where to begin.
        end: Where to end.
        pattern: What a metric looks like: its first group is the name, the last one that
            takes part is the number.
        space: What stands for a space in the names.
    """
    found: list[Number] = []
    for match in pattern.finditer(shape, begin, end):
        name = match[1].lower()
        if not _NOT_METRIC.fullmatch(name):
            # Digits are part of a name's value: acc1 and acc5 have one shape.
            told = slice(*match.span(1)) if "0" in name else match[1].replace(" ", space)
            found.append((told, slice(*match.span(match.lastindex or 0))))
    return found
