"""The environment that a run's program starts in, made of the requirements that its code names.

It lies on this node, for one team, under the hash of all that it is made from.

    environments/TEAM/HASH/         headway's
      lock                          held by a process of headway's that makes, takes or removes it
      making-CONTAINER              that container makes it, and has not ended well yet
      given-CONTAINER/              what it is made from, which that container may only read
      CONTAINER/                    its maker's while it makes it, nobody's to write from then on
      sealed                        which of these holds, and how it looked when it was sealed
      used-CONTAINER                that container has it

The container that makes one has the run's name and limits, and another user than any program. It
runs headway's maker alone. What it made is sealed when all of its processes are gone.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from headway.code.unpack import ChunkCache, unpack
from headway.durable import lock_file, replace_file
from headway.errors import InvalidInput
from headway.home import have_passable
from headway.model.code import CodeManifest
from headway.model.environment import (
    MOST_REQUIREMENTS_BYTES,
    Requirements,
    environment_id,
    given,
    read_requirements,
)
from headway.model.lease import Lease
from headway.model.outside import CERTIFICATES_FILE, Outside
from headway.model.sent_files import SentFile
from headway.run.code import code_parts
from headway.run.here import NodeAttempt
from headway.run.outside import certificates_of
from headway.runtime.diskuse import used_bytes
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import BindMount, ContainerSpec
from headway.settings import Settings
from headway.site import as_ids
from headway.trees import remove, stats_below
from headway.units import format_size

ENVIRONMENT, GIVEN, MAKER = "/opt/headway/environment", "/opt/headway/given", "/opt/headway/uv"
LOCK, SEALED, USED, MAKING, GIVEN_TO = "lock", "sealed", "used-", "making-", "given-"
_MAKER_FOLDER = ".uv"  # no team's name begins so
_ENTRY = Path(__file__).with_name("environment_entry.py")
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one attempt on this node."""

    attempt: NodeAttempt
    folder: Path
    wanted: Requirements
    wheels: tuple[SentFile, ...]
    """Files of the job's folder that the requirements may lead to."""
    parts: ChunkCache
    """Has their content."""
    variables: Mapping[str, str]
    """What says where packages come from, and how they are reached."""
    outside: Outside
    """The site's own part of that, whose certificates are the same in all environments."""

    @property
    def made(self) -> Path:
        """What the attempt's container makes."""
        return self.folder / self.attempt.container

    @property
    def is_being_made(self) -> bool:
        """Whether the attempt's container, where there is one, is to make it."""
        return self._making.exists()

    @property
    def _making(self) -> Path:
        return self.folder / f"{MAKING}{self.attempt.container}"

    @property
    def _given(self) -> Path:
        return self.folder / f"{GIVEN_TO}{self.attempt.container}"

    @contextmanager
    def held(self, lines: Callable[[bytes, int], None] | None = None) -> Iterator[None]:
        """Within the block nobody else makes, takes or removes it.

        A wait for whoever does is told to *lines*, as a line of the log.
        """
        have_passable(self.folder)
        while (lock := lock_of(self.folder)) is None:
            if lines is not None:
                lines(b"headway: another run makes the environment; waiting for it\n", 0)
                lines = None
            self.attempt.site.clock.sleep(_POLL_S)
            have_passable(self.folder)
        try:
            yield
        finally:
            os.close(lock)

    def is_sealed(self) -> bool:
        """Whether it is there, and looks as it did when it was sealed."""
        note = read_seal(self.folder)
        return bool(note) and _looks(self.folder / note["made"]) == note["looks"]

    def taken(self) -> tuple[tuple[str, ...], BindMount]:
        """The words before a command that starts in it, and its mount; it stays for its container.

        Raises:
            RuntimeFailure: It was removed, or changed, since it was made.
        """
        with self.held():
            if not self.is_sealed():
                raise RuntimeFailure(
                    f"the environment of {self.attempt.job.requirements} was removed or changed "
                    f"since it was made ({self.folder}); nothing was started in it. The next "
                    "attempt makes it anew"
                )
            (self.folder / f"{USED}{self.attempt.container}").touch()
            os.utime(self.folder)  # by this it is known how long nobody has used it
            mount = BindMount(self.folder / read_seal(self.folder)["made"], ENVIRONMENT)
        place = self.attempt.site.runtime.path_in_container(mount)
        return ("python3", "-I", "-c", _ENTRY.read_text(), "enter", place), mount

    def maker(self, lease: Lease) -> ContainerSpec:
        """The container that makes it: it gets nothing of the job but what it is made from."""
        attempt, site, job = self.attempt, self.attempt.site, self.attempt.job
        path_in, maker = site.runtime.path_in_container, as_ids(attempt.maker)
        attempt.made("log")
        self._making.touch()
        for left in (self.made, self._given):
            remove(left)
        self.made.mkdir(mode=0o700)
        if maker is not None:
            os.chown(self.made, *maker)
        unpack(CodeManifest(self.wheels), self.parts, self._given, maker)
        for name, text in (
            ("requirements.txt", self.wanted.text),
            ("constraints.txt", self.wanted.constraints_text),
        ):
            replace_file(self._given / name, text, lasts=False, owner=maker)
        certificates = certificates_of(attempt, self.outside)
        replace_file(self._given / CERTIFICATES_FILE, certificates, lasts=False, owner=maker)
        made = BindMount(self.made, ENVIRONMENT, read_only=False)
        from_, uv = (
            BindMount(self._given, GIVEN),
            BindMount(maker_of(site.settings.environments_dir), MAKER),
        )
        place = f"{path_in(from_)}/{CERTIFICATES_FILE}" if certificates else ""
        reached = {**self.outside.variables(place), **self.variables}
        own = {"HOME": path_in(made), "HEADWAY_CONTACT": self.outside.contact}
        words = ("python3", "-I", "-c", _ENTRY.read_text(), "make", path_in(made))
        return ContainerSpec(
            name=attempt.container,
            run_id=attempt.run_id,
            attempt=attempt.number,
            image=job.image,
            command=(*words, job.requirements, path_in(from_), f"{path_in(uv)}/uv"),
            env={**reached, **own},
            mounts=(made, from_, uv),
            log_path=attempt.log,
            host_memory_bytes=lease.host_memory_bytes,
            cpus=lease.cpus,
            shm_bytes=job.resources.shm,
            network=attempt.network(),
            user=attempt.maker,
            log_limit_bytes=site.settings.log_limit_bytes,
            working_dir=path_in(from_),
            disk_bytes=job.resources.disk or None,
        )

    def seal(self) -> None:
        """Nobody writes to what was made from now on; its container is gone with all processes.

        Raises:
            RuntimeFailure: It could not be sealed.
        """
        user = as_ids(self.attempt.user)
        if user is not None and os.geteuid() == 0:
            _told("chown", "-hR", f"0:{user[1]}", self.made)
        _told("chmod", "-R", "ug-s,a-w,ug+rX,o=", self.made)
        # A loss of power must not leave the note alone, and files without content.
        _told("sync", "-f", self.made)
        looks, size_bytes = _looks(self.made), used_bytes(self.made)
        note = {"made": self.made.name, "looks": looks, "size_bytes": size_bytes}
        replace_file(self.folder / SEALED, json.dumps(note))
        self._making.unlink()
        remove(self._given)


def environment_of(attempt: NodeAttempt) -> Environment | None:
    """The environment that the job of *attempt* names; None where it names none.

    Raises:
        InvalidInput: The code has no such file, or it asks for what no environment can have.
        ImageMissing: The image is not to be had.
    """
    job, site = attempt.job, attempt.site
    if not job.requirements or job.code is None:
        return None
    wanted, wheels, parts = wanted_by(attempt, job.code)
    outside, variables = reached_by(attempt)
    image = site.runtime.ensure_image(job.image)
    name = environment_id(image, attempt.user, *made_from(wanted, wheels, variables))
    folder = site.settings.environments_dir / attempt.job.team / name
    return Environment(attempt, folder, wanted, wheels, parts, variables, outside)


def wanted_by(
    attempt: NodeAttempt, code_id: str
) -> tuple[Requirements, tuple[SentFile, ...], ChunkCache]:
    """What the job's requirements ask for, the wheels of its folder, and what has their content.

    Raises:
        InvalidInput: The code has no such file, or it asks for what no environment can have.
    """
    manifest, parts = code_parts(attempt, code_id)
    files = {each.path: each for each in manifest.files}

    def read(path: str) -> bytes:
        if files[path].size_bytes > MOST_REQUIREMENTS_BYTES:
            most = f"give a file of at most {format_size(MOST_REQUIREMENTS_BYTES)}"
            raise InvalidInput("requirements", path, most)
        return b"".join(map(parts.content, files[path].chunks))

    wanted = read_requirements(attempt.job.requirements, files, read)
    return wanted, tuple(files[path] for path in wanted.wheels), parts


def reached_by(attempt: NodeAttempt) -> tuple[Outside, dict[str, str]]:
    """What the site says of the outside, and the variables by which packages are reached."""
    policy = attempt.site.policy_for(attempt.job.team)
    own = {**policy.environment, **given(attempt.job.env)}
    return policy.outside, {**policy.outside.variables(), **own}


def made_from(
    wanted: Requirements, wheels: Sequence[SentFile], variables: Mapping[str, str]
) -> tuple[object, ...]:
    """That part of an environment's identity that no machine and no user adds to."""
    return (
        [wanted.options, wanted.lines, wanted.constraints],
        [[each.path, each.chunks] for each in wheels],
        sorted(variables.items()),
    )


def is_being_made(settings: Settings, container: str) -> bool:
    """Whether *container* makes an environment, so that nothing of a job may run in it."""
    return any(settings.environments_dir.glob(f"*/*/{MAKING}{container}"))


def lock_of(folder: Path) -> int | None:
    """The lock of an environment's folder, as a descriptor that holds it; None: another has it."""
    try:
        return lock_file(folder / LOCK)
    except FileNotFoundError:  # it was just removed
        return None


def read_seal(folder: Path) -> dict[str, Any]:
    """What is noted of the environment in *folder*; empty where none was sealed."""
    try:
        found: dict[str, Any] = json.loads((folder / SEALED).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _looks(made: Path) -> str:
    """SHA-256 of what tells whether anything below *made* was written, moved or given away since.

    The kernel sets the time of a change, which nobody else can; so no content is read.
    """
    try:
        found = [made.lstat(), *stats_below(made)]
    except OSError:
        return ""
    seen = sorted(
        (s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for s in found
    )
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _told(*words: str | Path) -> None:
    done = subprocess.run(
        [*words[:-1], "--", words[-1]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeFailure(
            f"the environment {words[-1]} could not be sealed ({done.stderr.strip()[-300:]}); "
            "nothing is started in it. The next attempt makes it anew"
        )


def maker_of(environments: Path) -> Path:
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
