"""Where the names and numbers of metrics stand in a text."""

import re
from collections.abc import Callable, Iterator

MAX_METRICS = 32

Span = tuple[int, int]
Number = tuple[Span | str, int, int]
"""A metric: where its name stands (or the name, where the line does not say it), and
the begin and end of its number."""

NUMBER = r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,5})?"
COUNT = r"([0-9]{1,15})"

# Possessive counts ({…}+) and a start at a word's start keep this linear on hostile lines.
_PAIR = re.compile(
    r"(?<![\w.@/])"
    r"((?:(?:train|training|val|valid|validation|test|eval|avg|average|lm|learning) )?"
    r"[A-Za-z_][\w./@-]{0,47}+)"
    r"[\"']?\s{0,4}+(?:[:=]\s{0,8}+[\"'\[]?(" + NUMBER + r")|(?<=\s)([-+]?[0-9]{1,20}\.[0-9]{1,20}"
    r"(?:[eE][-+]?[0-9]{1,3})?))(?![\w.]*[:/]|\.?[0-9])",
    re.ASCII,
)
_NOT_METRICS = frozenset(
    (
        *("epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "it"),
        *("batch", "eta", "remaining", "v_num", "rank", "gpu", "cuda", "total"),
        # Words before a number in a sentence.
        *("in", "after", "took", "at", "of", "for", "to", "is", "with", "by", "from", "than"),
    )
)

STEP = re.compile(
    r"(?<![A-Za-z_])(?:[Gg]lobal[_ ]?[Ss]tep|[Ss]tep|STEP|[Ii]ter(?:ations?)?|ITER"
    r"|[Uu]pdate|[Bb]atch(?:_idx)?|[Rr]ound)\b[\s:=#\[(|'\"]{0,14}(?:[0-9]{1,12}-)?" + COUNT
    + r"(?:\s{0,3}(?:/|of)\s{0,8}" + COUNT + r"(?![0-9/]))?(?!\.?[0-9]|[\w%])",
    re.ASCII,
)  # fmt: skip
"""``step 3``, ``Iteration: 3/100``; not how many of ``iteration 3/4/5``."""

_SOURCES = (".py", ".cpp", ".cc", ".cu", ".h")
"""``solver.cpp:228`` is a place in a program, not a metric."""


# What a program prints of its own arguments.
_SETTING = re.compile(
    r"\b(?:\w{0,12}batch_size|seed|\w{0,8}workers|weight_decay|momentum|optimizer|resume|arch|gamma"
    r"|dataset|device|dropout|patience|step_size|(?:num_|max_|n_)?epochs|max_steps|warmup\w{0,20}"
    r"|save_\w{1,20}|\w{1,20}_(?:interval|freq|dir|path))['\"]?\s?[=:]"
)
_FEW_SETTINGS = 1


def is_settings(line: str) -> bool:
    """Whether *line* shows a program's own arguments: ``Namespace(lr=0.1, epochs=90, step=30)``."""
    return "Namespace(" in line or len(_SETTING.findall(line)) > _FEW_SETTINGS


def step_of_run(line: str) -> Span | None:
    """Where the steps in all stand in a line that tells those of the epoch too.

    ``Step: 16125. Epoch: 55/100. Iteration: 11/293.``: what has far more digits is of the run.
    """
    steps = sorted(STEP.finditer(line), key=lambda match: len(match[1]))
    if len(steps) > 1 and steps[-1][2] is None and len(steps[-1][1]) > len(steps[0][1]) + 1:
        return steps[-1].span(1)
    return None


def pairs(text: str) -> Iterator[Number]:
    """Every ``name: number``, ``name=number`` and ``name 1.5`` in *text*."""
    for match in _PAIR.finditer(text):
        name = match[1]
        if (
            name not in _NOT_METRICS
            and name.lower() not in _NOT_METRICS
            and not name.endswith((*_SOURCES, "epoch"))
        ):
            yield match.span(1), *match.span(2 if match[2] is not None else 3)


def numbers_in(
    line: str,
    begin: int,
    end: int | None = None,
    find: Callable[[str], Iterator[Number]] = pairs,
) -> list[Number]:
    """What *find* finds in *line* from *begin* to *end*, at its places in *line*."""
    found: list[Number] = []
    for name, number_begin, number_end in find(line[begin:end]):
        moved = name if isinstance(name, str) else (name[0] + begin, name[1] + begin)
        found.append((moved, number_begin + begin, number_end + begin))
    return found
