"""What a program finds on its node: folders, and the variables that say where they are."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from headway.errors import InvalidInput
from headway.model.array import FILE_VARIABLE, Membership
from headway.model.volume import Volume, refused_volume
from headway.run.here import CHECKPOINT_FOLDER, NodeAttempt
from headway.runtime import secretfiles
from headway.runtime.port import BindMount

DATA, OUTPUTS, CHECKPOINT, USER, VOLUMES = "/data", "/outputs", "/checkpoint", "/user", "/volumes"
PARAMETERS, CONFIG = "/array", "/config"
_CONFIGS = {"HEADWAY_CONFIG": "config.json", "HEADWAY_CONFIG_YAML": "config.yaml"}
_PARAMETERS = "parameters.json"


@dataclass(frozen=True, slots=True)
class Given:
    """A folder, or a file, that a program finds."""

    mount: BindMount
    files: Mapping[str, str]
    """By variable, what below it the variable leads to; empty for itself."""
    usual: Sequence[str] = ()
    """Further variables that lead to itself, unless the job sets them otherwise."""

    def variables(self, path_in: Callable[[BindMount], str]) -> dict[str, str]:
        """Those of `files`; *path_in* says where the program finds a mount."""
        place = path_in(self.mount)
        return {name: f"{place}/{below}" if below else place for name, below in self.files.items()}


def given_to(attempt: NodeAttempt, member: Membership | None) -> Iterator[Given]:
    """All that the program of *attempt* finds, its outputs first; what is to be made is made.

    Raises:
        InvalidInput: The job asks for a volume or a folder that it cannot have here.
    """
    for name, place in (("outputs", OUTPUTS), (CHECKPOINT_FOLDER, CHECKPOINT)):
        own = BindMount(attempt.made(name), place, read_only=False)
        yield Given(own, {f"HEADWAY_{name.upper()}": ""})
    for name, staged in attempt.datasets.items():
        path = staged.path  # a file keeps its own name, whose end tells its kind
        below = f"{name}/{path.name}" if name and path.is_file() else name or path.name
        yield Given(BindMount(path, f"{DATA}/{below}"), {variable_of("DATA", name): ""})
    for name, folder in attempt.made_user_folders().items():
        kept = BindMount(folder, f"{USER}/{name}", read_only=False)
        yield Given(kept, {variable_of("USER", name): ""})
    yield from volumes_of(attempt)
    if member is not None:
        told = attempt.told("array", _PARAMETERS, member.file())
        yield Given(BindMount(told, PARAMETERS), {FILE_VARIABLE: _PARAMETERS})
    if attempt.job.config:
        yield _config(attempt, attempt.job.config)
    if attempt.job.secrets:
        files = {f"{variable}_FILE": variable for variable in attempt.job.secrets}
        yield Given(BindMount(attempt.secrets, secretfiles.TARGET), files)


def variable_of(kind: str, name: str) -> str:
    """The variable that says where the data set or the volume of this name is."""
    return "_".join(filter(None, ("HEADWAY", kind, name.upper().replace("-", "_"))))


def volumes_of(attempt: NodeAttempt) -> Iterator[Given]:
    """The site's volumes that the job asks for."""
    asked, team = attempt.job.volumes, attempt.job.team
    offered = attempt.site.policy_for(team).volumes if asked else {}
    refused = refused_volume(asked, offered, team)
    if refused is not None:
        raise refused
    for name in asked:
        volume = offered[name]
        try:
            source = _source(attempt, volume)
        except OSError as error:
            node = attempt.site.settings.node
            allowed = f"{volume.path} of node {node} cannot be used: {error.strerror}; ask for it"
            raise InvalidInput("volumes", name, allowed) from error
        mount = BindMount(source, f"{VOLUMES}/{name}", read_only=not volume.writable)
        yield Given(mount, {variable_of("VOLUME", name): ""}, tuple(volume.variables))


def _source(attempt: NodeAttempt, volume: Volume) -> Path:
    """What is mounted of it; the folder of the job's team is made where there is none."""
    if not volume.path.is_dir():
        raise FileNotFoundError(0, "it is no directory there")
    if not volume.writable:
        return volume.path
    own = volume.path / attempt.job.team
    if own.is_symlink():  # whoever made it, it is not headway that decides where it leads
        raise NotADirectoryError(0, f"{own} is a link")
    attempt.have_own(own)
    return own


def _config(attempt: NodeAttempt, config: Mapping[str, object]) -> Given:
    """The job's config as files that its program may not change."""
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.version = "1.1"  # PyYAML reads 1e-05 as text, which 1.2 takes for a number
    writer.dump(config, text)
    attempt.told("config", _CONFIGS["HEADWAY_CONFIG"], json.dumps(config, indent=2) + "\n")
    folder = attempt.told("config", _CONFIGS["HEADWAY_CONFIG_YAML"], text.getvalue())
    return Given(BindMount(folder, CONFIG), _CONFIGS)
