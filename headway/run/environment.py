"""The environment that a run's program starts in, made of the requirements that its code names.

It lies on this node, for one team, under the hash of image and requirements. The first run that
needs one makes it in its own container (`environment_entry.py`); those that come later find it and
may not write to it.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from headway.errors import InvalidInput
from headway.home import have_passable
from headway.model.environment import MOST_REQUIREMENTS_BYTES, environment_id
from headway.run.here import NodeAttempt
from headway.runtime.port import BindMount
from headway.site import as_ids
from headway.units import format_size

ENVIRONMENT, CACHE, MAKER = "/opt/headway/environment", "/opt/headway/cache", "/opt/headway/uv"
CACHE_FOLDER = "cache"
LOCK = "lock"
_MADE = "made"
_MAKER_FOLDER = ".uv"  # no team's name begins so
_ENTRY = Path(__file__).with_name("environment_entry.py")


@dataclass(frozen=True, slots=True)
class Environment:
    """What a container's spec gets for it; nothing where the job names no requirements."""

    words: tuple[str, ...] = ()
    """Before the command."""
    mounts: tuple[BindMount, ...] = ()


def environment_of(attempt: NodeAttempt, copy: Path | None) -> Environment:
    """How to start the program of *attempt*, whose code lies in *copy*, in its environment.

    Raises:
        InvalidInput: The code has no such file.
    """
    job = attempt.job
    if not job.requirements:
        return Environment()
    content = _content(copy, job.requirements)
    name = environment_id(job.image, job.requirements, content, job.code or "")
    settings, path_in = attempt.site.settings, attempt.site.runtime.path_in_container
    above = settings.environments_dir / attempt.record.team
    have_passable(above)
    folder = above / name
    # It is headway's, so that no program puts a link in the place of what lies in it.
    have_passable(folder)
    attempt.have_own(folder / _MADE)
    _have_lock(folder / LOCK, attempt.user)
    os.utime(folder)  # by this it is known how long nobody has used it
    made = os.path.lexists(folder / _MADE / "ready")
    mount = BindMount(folder, ENVIRONMENT, read_only=made)
    maker, mounts = ("", ""), [mount]
    if not made:
        cache = above / CACHE_FOLDER
        attempt.have_own(cache)
        uv = BindMount(_maker(settings.environments_dir), MAKER)
        kept = BindMount(cache, CACHE, read_only=False)
        maker, mounts = (f"{path_in(uv)}/uv", path_in(kept)), [mount, uv, kept]
    entry = ("python3", "-c", _ENTRY.read_text(), path_in(mount), job.requirements)
    return Environment((*entry, *maker), tuple(mounts))


def _have_lock(lock: Path, user: str) -> None:
    """Have the lock, which programs of *user* take: whoever may open it could hold it for good."""
    lock.touch(mode=0o600)
    lock.chmod(0o600)  # anybody could read those of earlier versions
    ids = as_ids(user)
    if ids is not None:
        os.chown(lock, *ids)


def _content(copy: Path | None, path: str) -> bytes:
    """The file of requirements, in a copy that no program has written to yet."""
    allowed = "give a file of the folder that is sent along, such as requirements.txt"
    try:
        if copy is None:
            raise FileNotFoundError(path)
        with (copy / path).open("rb") as file:
            content = file.read(MOST_REQUIREMENTS_BYTES + 1)
    except OSError as error:
        raise InvalidInput("requirements", path, allowed) from error
    if len(content) > MOST_REQUIREMENTS_BYTES:
        most = f"give a file of at most {format_size(MOST_REQUIREMENTS_BYTES)}"
        raise InvalidInput("requirements", path, most)
    return content


def _maker(environments: Path) -> Path:
    """A folder with this headway's uv, which any program may read and nobody writes."""
    source = Path(find_uv_bin())
    folder = environments / _MAKER_FOLDER
    place = folder / "uv"
    if not place.exists() or place.stat().st_size != source.stat().st_size:
        have_passable(environments)
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)
        part = folder / f".{os.getpid()}.part"
        shutil.copyfile(source, part)
        part.chmod(0o755)
        part.replace(place)
    return folder
