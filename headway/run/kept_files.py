"""What a program has written into its working copy goes to its outputs, before the copy goes.

Many programs write below the folder that they start in, and name no other. Their files are moved,
not copied: they take no more of the disk than they did. The program has ended, but another
attempt may be at work on the outputs: every folder is opened from the one before.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from headway.errors import RunUnknown
from headway.ledger.records import RunRecord
from headway.run.outputs import FOLDER_FLAGS, OUTPUTS_FOLDER, list_outputs
from headway.site import Site
from headway.units import format_size

log = logging.getLogger(__name__)

KEPT_FOLDER = "work"
"""Below the outputs; in its container the working copy has the same name."""
_ALL = ["**"]
_RESULTS = frozenset({"runs", "checkpoints", "lightning_logs", "outputs", "wandb", "mlruns"})
"""Folders that are kept also where the job names others."""
_DATA = frozenset({"data", "dataset", "datasets"})
"""Folders at the top into which programs download what they read."""
_CACHES = frozenset(
    {"__pycache__", ".cache", ".git", ".ipynb_checkpoints", ".venv", "venv", "site-packages"}
    | {"node_modules", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".triton", ".nv"}
)


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """What became of the new files of a working copy."""

    files: int = 0
    size_bytes: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    """Sizes of what was not kept, by its folder or name at the top."""
    complete: bool = True
    """False where there was more than is listed of any outputs."""

    def sentence(self) -> str:
        """For people; empty where there was nothing new."""
        said = []
        if self.files:
            files, are = ("1 file", "is") if self.files == 1 else (f"{self.files:,} files", "are")
            size = format_size(self.size_bytes)
            said.append(f"{files} ({size}) of its working directory {are} in {KEPT_FOLDER}/")
        if self.left:
            largest = Counter(self.left).most_common(3)
            shown = ", ".join(f"{name} ({format_size(size)})" for name, size in largest)
            more = f" and {len(self.left) - 3} more" if len(self.left) > 3 else ""
            said.append(f"not kept of it: {shown}{more}")
        if not self.complete:
            said.append("more than that was not kept: pack what is many files or deep folders")
        return "; ".join(said)


def is_kept(path: str, patterns: Sequence[str]) -> bool:
    """Whether a new file at *path* in a working copy goes to the outputs.

    Args:
        path: Below the working copy.
        patterns: The job's ``outputs``.
    """
    *folders, name = path.split("/")
    names_some = list(patterns) != _ALL
    if names_some and any(fnmatchcase(x, each) for each in patterns for x in (path, name)):
        return True
    if not _CACHES.isdisjoint(folders) or name.endswith(".pyc"):
        return False
    if names_some:
        return not _RESULTS.isdisjoint(folders)
    return not (folders and folders[0] in _DATA)


def keep_new_files(site: Site, container: str) -> KeptFiles:
    """Move what the program of *container*, which has ended, wrote into its copy to its outputs.

    Also what was sent along and has another size now. Idempotent: what is gone was moved.
    """
    settings = site.settings
    run_id = container.removeprefix("headway-").rpartition("-")[0]
    try:
        listed = list_outputs(settings.work_dir, container)
        if listed is None:
            return KeptFiles()
        record = site.ledger.runs.get(run_id)
    except (RunUnknown, OSError):
        return KeptFiles()
    sent = _sent(site, record)
    if sent is None:
        log.warning(
            "what %s wrote into its copy is not kept: what was sent is not known", container
        )
        return KeptFiles()
    new = [each for each in listed.files if sent.get(each.path) != each.size_bytes]
    patterns, kept, size_bytes = record.job.get("outputs", _ALL), 0, 0
    left, why = Counter[str](), ""
    for file in new:
        try:
            moved = is_kept(file.path, patterns)
            if moved:
                _move(settings.work_dir / container, settings.runs_dir / run_id, file.name)
        except OSError as error:
            moved, why = False, str(error)
        if moved:
            kept, size_bytes = kept + 1, size_bytes + file.size_bytes
        elif _CACHES.isdisjoint(file.path.split("/")):
            left[file.path.partition("/")[0]] += file.size_bytes
    if why:
        log.warning("not all that %s wrote was kept: %s", container, why)
    return KeptFiles(kept, size_bytes, left, listed.complete)


def _sent(site: Site, record: RunRecord) -> dict[str, int] | None:
    """Sizes of the files that the run brought along, by path; None where that is not known.

    A node's login sees the code of a team as long as that holds something there.
    """
    manifest = site.ledger.code.manifest(record.team, str(record.job.get("code")))
    return None if manifest is None else {each.path: each.size_bytes for each in manifest.files}


def _move(copy: Path, run_folder: Path, name: bytes) -> None:
    """Move the file *name* of *copy* to the folder for it below the outputs of its run."""
    *folders, last = name.split(b"/")
    with ExitStack() as opened:

        def deeper(above: int | None, folder: bytes | Path, *, make: bool = False) -> int:
            """Open a folder; with *make* one that is, as the one above, the program's user's."""
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=above)
            below = os.open(folder, FOLDER_FLAGS, dir_fd=above)
            opened.callback(os.close, below)
            if make and above is not None:
                owner, own = os.fstat(above), os.geteuid()
                if os.fstat(below).st_uid == own != owner.st_uid:
                    os.fchown(below, owner.st_uid, owner.st_gid)
            return below

        source = deeper(None, copy)
        target = deeper(deeper(None, run_folder), OUTPUTS_FOLDER.encode())
        target = deeper(target, KEPT_FOLDER.encode(), make=True)
        for each in folders:
            source, target = deeper(source, each), deeper(target, each, make=True)
        os.rename(last, last, src_dir_fd=source, dst_dir_fd=target)
