"""What a part of a gang is told once all of them run, where its program has to know all places."""

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from headway.durable import replace_file
from headway.errors import RuntimeFailure
from headway.home import have_passable
from headway.model.launch import joined, tf_config
from headway.run.here import NodeAttempt
from headway.runtime.port import BindMount

GANG = "/opt/headway/gang"
_ENTRY = Path(__file__).with_name("gang_entry.sh")
_PLACE = re.compile(r"[0-9A-Za-z._:-]+:[0-9]{1,5}")


def gang_folder(attempt: NodeAttempt) -> Path:
    """The folder of this attempt. It is headway's, so that no program puts a link into it."""
    return attempt.folder / f"gang-{attempt.number}"


def entry_of(attempt: NodeAttempt) -> tuple[tuple[str, ...], tuple[BindMount, ...]]:
    """Words before the command, and mounts; none where the program needs to know no places."""
    if attempt.meeting is None or not attempt.job.launch.gathers:
        return (), ()
    folder = gang_folder(attempt)
    have_passable(folder)
    mount = BindMount(folder, GANG)
    path = attempt.site.runtime.path_in_container(mount)
    return ("/bin/sh", "-c", _ENTRY.read_text(), "headway", path), (mount,)


def tell(attempt: NodeAttempt, places: Sequence[str], rank: int) -> None:
    """Let the program of part *rank* begin, which finds the others at *places*. Idempotent.

    Raises:
        RuntimeFailure: A place is none: another node has written what cannot be.
    """
    for place in places:
        if _PLACE.fullmatch(place) is None:
            raise RuntimeFailure(f"a part of the gang is said to be at {place!r}: no such place")
    split = [place.rpartition(":") for place in places]
    config = tf_config([joined(address, port) for address, _, port in split], rank)
    go = gang_folder(attempt) / "go"
    replace_file(go, f"export TF_CONFIG={shlex.quote(config)}\n", lasts=False)
    go.chmod(0o644)


def forget_gang_folder(attempt: NodeAttempt) -> None:
    """Remove it."""
    shutil.rmtree(gang_folder(attempt), ignore_errors=True)
