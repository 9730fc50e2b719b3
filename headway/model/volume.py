"""Folders of the nodes that an operator offers to jobs, by name."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from headway.errors import InvalidInput

VOLUME_NAME = r"[a-z0-9][a-z0-9-]{0,39}"
_VARIABLE = re.compile(r"(?!HEADWAY_|LD_|PATH$)[A-Z][A-Z0-9_]{0,99}")


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts or path == Path("/"):
        raise ValueError(f"give an absolute path such as /srv/models, not {path}")
    return path


def _variables(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if _VARIABLE.fullmatch(name) is None:
            raise ValueError(f"give a variable such as HF_HOME, not {name[:100]!r}")
    return names


class Volume(BaseModel):
    """A folder that is at the same path of every node."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[Path, AfterValidator(_absolute)]
    writable: bool = False
    """Then each team has a folder of its own in it, and no more of it; else all read all of it."""
    teams: tuple[str, ...] | None = None
    """Whose jobs may have it; None for everybody's."""
    variables: Annotated[tuple[str, ...], AfterValidator(_variables)] = ()
    """That tell libraries where it is, such as HF_HOME, where the job does not set them itself."""


def named_volumes(volumes: Mapping[str, Volume]) -> Mapping[str, Volume]:
    """*volumes*, if their names can be names of folders and variables.

    Raises:
        ValueError: One of them cannot.
    """
    for name in volumes:
        if re.fullmatch(VOLUME_NAME, name) is None:
            raise ValueError(f"name a volume in lower case, such as models, not {name[:100]!r}")
    return volumes


def refused_volume(
    asked: Sequence[str], volumes: Mapping[str, Volume], team: str
) -> InvalidInput | None:
    """What is wrong with the volumes that a job of *team* asks for; None if nothing."""
    theirs = sorted(name for name, it in volumes.items() if it.teams is None or team in it.teams)
    for at, name in enumerate(asked):
        if name not in theirs:
            allowed = f"team {team} may have {', '.join(theirs) or 'none'}: operators name them"
            return InvalidInput(f"volumes.{at}", name, allowed)
    return None
