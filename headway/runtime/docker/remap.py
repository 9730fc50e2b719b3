"""An engine that maps the users of containers to others of the host (userns-remap).

What headway chowns on the host, and what a program writes there, belongs to the host's ids; the
engine is told the container's. Both are the same number apart, by the subordinate range.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import PolicyViolation
from headway.model.number_range import NumberRange

SUBUID, SUBGID = Path("/etc/subuid"), Path("/etc/subgid")
_ROOT_OF_REMAPPED = re.compile(r"([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Remap:
    """Ids of the host that containers may have."""

    uids: NumberRange
    gids: NumberRange

    def inside(self, uid: int, gid: int) -> tuple[int, int]:
        """What the host's *uid* and *gid* are called in a container.

        Raises:
            PolicyViolation: No container can have them.
        """
        for what, number, ids in (("uid", uid, self.uids), ("gid", gid, self.gids)):
            if number not in ids:
                raise PolicyViolation(
                    what,
                    number,
                    f"this engine remaps users (userns-remap) to {ids}; give the team uids in "
                    "there, in teams of the block headway-container-policy/site",
                )
        return uid - self.uids.first, gid - self.gids.first


def remap_of(info: Mapping[str, Any], subuid: str, subgid: str) -> Remap | None:
    """How an engine that says *info* of itself maps users; None where it does not.

    Args:
        info: Its own words.
        subuid: What is in /etc/subuid.
        subgid: What is in /etc/subgid.
    """
    if not any("name=userns" in each for each in info.get("SecurityOptions") or ()):
        return None
    # Its folder is named after the ids that root of a container has on the host.
    found = _ROOT_OF_REMAPPED.fullmatch(Path(str(info.get("DockerRootDir", ""))).name)
    if found is None:
        return None
    return Remap(_range(int(found[1]), subuid), _range(int(found[2]), subgid))


def read_remap(info: Mapping[str, Any]) -> Remap | None:
    """The same, by this machine's files."""
    return remap_of(info, *(_text(each) for each in (SUBUID, SUBGID)))


def _range(first: int, text: str) -> NumberRange:
    """The subordinate range that begins with *first*; the usual size where none is listed."""
    fields: Iterable[list[str]] = (line.split(":") for line in text.splitlines())
    counts = [int(each[2]) for each in fields if len(each) == 3 and each[1] == str(first)]
    return NumberRange(first, first + max(counts, default=_USUAL) - 1)


_USUAL = 65_536


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
