"""How long runs of a team last: what is said of one of which nothing better is known.

The nearest group of runs that has enough of them speaks: those of its recipe,
else those of its owner, image and size, at last all of its team. Cheap to import.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.errors import HeadwayError
from headway.estimate.spread import Z80, next_of
from headway.model.job_text import job_gpus, job_nodes
from headway.model.run import OF_RECIPE, Prediction, Span
from headway.model.trace import LONGEST_S
from headway.units import parse_duration

Found = tuple[Span, str]
"""How long such runs last, and what that rests on."""
LOOKED_AT = 1000
"""So many of the newest ended runs are looked at."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What runs are told apart by."""

    recipe: str
    """As `TrainingJob.recipe` gives it."""
    owner: str
    """Empty where it is not known."""
    image: str
    gpus: int
    """On all its nodes."""
    limit_s: float = math.inf
    """Its time limit: it lasts no longer, whatever others do."""
    team: str = field(default="", repr=False)  # draws are seeded by what is shown of it
    """Whose run it is, of which those of others tell nothing; empty where all may know."""
    serves: bool = field(default=False, repr=False)
    """A session, or with ports: it lasts as long as it is used, of which others say nothing."""
    program: str = field(default="", repr=False, compare=False)
    """Digest of all that it runs and reads: command, code, image, data, and how it is told."""


@dataclass(frozen=True, slots=True)
class Lasted:
    """How long one run lasted, or is seen to last by its log."""

    kind: Kind
    runtime_s: float
    submitted_s: float = 0.0
    said_s: float | None = None
    """What had been said of it, where something was known."""


@dataclass(frozen=True, slots=True)
class _Group:
    words: str
    fields: tuple[str, ...]
    enough: int
    sd: float
    """Of the log of their runtimes, before any is seen."""


_PROGRAM = (
    *("image", "python", "command", "workdir", "code", "requirements", "dataset", "datasets"),
    *("env", "config", "launch", "volumes"),
)
"""Fields of a job that its program gets to see; what it claims of its training is none of them."""
_OF_RECIPE = (
    _Group("of its recipe and size", ("recipe", "gpus"), 1, 0.3),
    _Group("of its recipe", ("recipe",), 1, 0.7),
)
_GROUPS = (
    *_OF_RECIPE,
    _Group("of its owner, image and size", ("owner", "image", "gpus"), 1, 1.0),
    _Group("of its image and size", ("image", "gpus"), 1, 1.2),
    _Group("of its owner, size and time limit", ("owner", "gpus", "limit_s"), 3, 1.2),
    _Group("of its size and time limit", ("gpus", "limit_s"), 3, 1.2),
    _Group("of its owner and size", ("owner", "gpus"), 3, 1.2),
    _Group("of its size", ("gpus",), 3, 1.5),
    _Group("of its team", (), 3, 1.5),
)
"""The nearest first; below `enough` runs a group says nothing."""
_ENOUGH_SESSIONS = 5
"""The same of sessions: one that was looked at and ended tells nothing of the next."""


class Usual:
    """What the site's runs last, by kind."""

    def __init__(
        self, seen: Iterable[Lasted], *, shared: bool = False, of_recipe: bool = False
    ) -> None:
        """Learn from *seen*, in any order.

        Args:
            seen: Runs that have ended, or are seen to.
            shared: Each team learns from those of all.
            of_recipe: Runs of the same recipe alone speak: for what people are told.
        """
        self._shared, self._groups = shared, _OF_RECIPE if of_recipe else _GROUPS
        self._logs: dict[tuple[object, ...], list[float]] = {}
        self._said: dict[Kind, Found | None] = {}
        for one in seen:
            if not 0.0 < one.runtime_s < math.inf:
                continue
            for key in self.keys(one.kind):
                self._logs.setdefault(key, []).append(math.log(one.runtime_s))

    def of(self, kind: Kind) -> Found | None:
        """How long such a run lasts and what that rests on; None when nothing is known."""
        if kind not in self._said:
            self._said[kind] = self._of(kind)
        found = self._said[kind]
        most_s = min(kind.limit_s, LONGEST_S)
        return found and (Span(*(min(each, most_s) for each in found[0])), found[1])

    def keys(self, kind: Kind) -> Iterator[tuple[object, ...]]:
        """The groups that runs of *kind* belong to, the nearest first."""
        keys = (self._key(group, kind) for group in self._groups)
        return (key for key in keys if key is not None)

    def _key(self, group: _Group, kind: Kind) -> tuple[object, ...] | None:
        values = tuple(getattr(kind, name) for name in group.fields)
        if "" in values or math.inf in values:
            return None
        team = "" if self._shared else kind.team
        return (group.words, team, *values, *(("serves",) if kind.serves else ()))

    def _of(self, kind: Kind) -> Found | None:
        for group in self._groups:
            logs = self._logs.get(self._key(group, kind) or (), [])
            if len(logs) >= (_ENOUGH_SESSIONS if kind.serves else group.enough):
                whose = OF_RECIPE if group in _OF_RECIPE else "prior: as "
                words = f"{len(logs)} run{'' if len(logs) == 1 else 's'} {group.words} lasted"
                return _span(logs, group.sd), f"{whose}{words}"
        return None


def kind_of(job: Mapping[str, Any], owner: str, team: str) -> Kind:
    """The kind of a job by its document, which is not read as a job again.

    What is no job any more, as of another version of headway, is of a kind without a recipe.
    """
    try:
        return _kind(job, owner, team)
    except (HeadwayError, AttributeError, TypeError, ValueError):
        return Kind(recipe="", owner=owner, image="", gpus=0, limit_s=math.inf, team=team)


def _kind(job: Mapping[str, Any], owner: str, team: str) -> Kind:
    training = job.get("training") or {}
    limit = job.get("max_runtime")  # as `TrainingJob.document` writes it: 90s
    image, name = str(job.get("image", "")), str(job.get("name", ""))
    return Kind(
        recipe=str(training.get("network") or f"{image}:{name}"),
        owner=owner,
        image=image,
        gpus=job_gpus(job) * job_nodes(job),
        limit_s=parse_duration(limit) if isinstance(limit, str) else limit or math.inf,
        team=team,
        serves=job.get("session") is not None or bool(job.get("ports")),
        program=hashlib.sha256(
            json.dumps({name: job.get(name) for name in _PROGRAM}, sort_keys=True).encode()
        ).hexdigest(),
    )


def instead_of_prior(said: Prediction, found: Found | None) -> Prediction:
    """*said*, a prior, with what others lasted where that is *found*; it stays a prior."""
    if found is None:
        return said
    (low_s, median_s, high_s), words = found
    return replace(
        said,
        runtime_low_s=low_s,
        runtime_s=median_s,
        runtime_high_s=high_s,
        basis=f"{words}; nothing like it has run",
    )


def _span(logs: list[float], prior_sd: float) -> Span:
    centre, sd = next_of(logs, prior_sd)
    half = Z80 * sd
    return Span(math.exp(centre - half), math.exp(centre), math.exp(centre + half))
