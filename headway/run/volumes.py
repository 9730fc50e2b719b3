"""The site's volumes that a job asks for, on the node where it starts."""

from pathlib import Path

from headway.errors import InvalidInput
from headway.model.volume import Volume, refused_volume
from headway.run.here import NodeAttempt
from headway.runtime.port import BindMount

VOLUMES = "/volumes"


def volumes_of(attempt: NodeAttempt) -> dict[str, tuple[Volume, BindMount]]:
    """How each of them is mounted, by its name.

    Raises:
        InvalidInput: The site has none of that name for this team, or this node has not got it.
    """
    asked, team = attempt.job.volumes, attempt.job.team
    offered = attempt.site.policy_for(team).volumes if asked else {}
    refused = refused_volume(asked, offered, team)
    if refused is not None:
        raise refused
    found = {}
    for name in asked:
        volume = offered[name]
        try:
            source = _source(attempt, volume)
        except OSError as error:
            node = attempt.site.settings.node
            allowed = f"{volume.path} of node {node} cannot be used: {error.strerror}; ask for it"
            raise InvalidInput("volumes", name, allowed) from error
        mount = BindMount(source, f"{VOLUMES}/{name}", read_only=not volume.writable)
        found[name] = volume, mount
    return found


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
