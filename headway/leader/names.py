"""Names of runs: those that Prefect makes up give way to the job's own."""

from collections.abc import Mapping
from typing import Any

from coolname import data as coolname

_LISTS: dict[str, Any] = dict(coolname.config)
_LONGEST_NAME = 63


def _words(name: str) -> frozenset[str]:
    """The words of a list of coolname and of the lists that it is made of."""
    part = _LISTS[name]
    inner = (_words(each) for each in part.get("lists", ()))
    return frozenset(part.get("words", ())).union(*inner)


_ADJECTIVES, _ANIMALS = (_words(name) for name in _LISTS["an"]["lists"])


def is_made_up(name: str) -> bool:
    """Whether Prefect made up a run's *name*, such as ``vague-kakapo``, since nobody gave one."""
    adjective, _, animal = name.partition("-")
    return adjective in _ADJECTIVES and animal in _ANIMALS


def run_name_of(run_name: str, job: Mapping[str, Any]) -> str:
    """What a run of *job* is called: by its job where Prefect made up *run_name*."""
    named = job.get("name")
    usable = isinstance(named, str) and 0 < len(named) <= _LONGEST_NAME
    return str(named) if usable and is_made_up(run_name) else run_name
