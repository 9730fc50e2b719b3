"""One attempt on its node: what it is called there, and where its files lie."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headway.home import have_passable
from headway.model.job import TrainingJob
from headway.runtime import secretfiles
from headway.runtime.redact import FileRedactor
from headway.settings import Settings
from headway.site import Site, as_ids


def container_name(run_id: str, attempt: int) -> str:
    """The one name of an attempt's container: one name, so one container, whatever dies."""
    return f"headway-{run_id}-{attempt}"


def log_path(settings: Settings, run_id: str, attempt: int | str) -> Path:
    """The file on this node that gets what the program of an attempt prints."""
    return settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"


@dataclass(frozen=True, slots=True)
class NodeAttempt:
    """An attempt of a run on this node."""

    site: Site
    run_id: str
    number: int
    job: TrainingJob

    @property
    def container(self) -> str:
        """Name of its container."""
        return container_name(self.run_id, self.number)

    @property
    def folder(self) -> Path:
        """Log, outputs and checkpoints of the run."""
        return self.site.settings.runs_dir / self.run_id

    @property
    def log(self) -> Path:
        """What its program prints."""
        return log_path(self.site.settings, self.run_id, self.number)

    @property
    def secrets(self) -> Path:
        """Where the secrets of its container lie."""
        return self.site.settings.secrets_dir / self.container

    def made(self, name: str) -> Path:
        """A directory of the run that is the program's user's alone."""
        have_passable(self.folder)
        folder = self.folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        user = as_ids(self.site.container_user)
        if user is not None:
            os.chown(folder, *user)
        return folder


def forget_secrets(settings: Settings, container: str) -> None:
    """Redact the secrets of *container*, which is gone, in its log, and remove them."""
    folder = settings.secrets_dir / container
    run_id, _, attempt = container.removeprefix("headway-").rpartition("-")
    with suppress(OSError):  # what lies there is no log; the secrets go in any case
        FileRedactor(log_path(settings, run_id, attempt), secretfiles.read(folder)).redact()
    secretfiles.remove(folder)
