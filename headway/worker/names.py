"""Names of runs: those that Prefect makes up give way to the job's own."""

from collections.abc import Mapping
from typing import Any

from coolname import data as coolname

_LISTS: dict[str, Any] = dict(coolname.config)
_MADE_UP_FROM = frozenset(word for part in _LISTS.values() for word in part.get("words", ()))
_LONGEST_NAME = 63


def is_made_up(name: str) -> bool:
    """Whether Prefect made up a run's *name*, such as ``vague-kakapo``, since nobody gave one."""
    first, _, second = name.partition("-")
    return first in _MADE_UP_FROM and second in _MADE_UP_FROM


def name_of(run_name: str, job: Mapping[str, Any]) -> str:
    """What a run of *job* is called: by its job where Prefect made up *run_name*."""
    named = job.get("name")
    usable = isinstance(named, str) and 0 < len(named) <= _LONGEST_NAME
    return str(named) if usable and is_made_up(run_name) else run_name
