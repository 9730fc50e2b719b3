"""One attempt on its node: what it is called there, and where its files lie."""

import os
import stat
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

from headway.durable import replace_file
from headway.errors import InvalidInput, LeaseLost
from headway.forecast import Forecaster
from headway.home import TOLD_FOLDER, have_passable
from headway.ledger.arrays import kept_array
from headway.ledger.records import RunRecord
from headway.model.array import Membership
from headway.model.container_policy import GangNetwork, NetworkMode
from headway.model.job_text import job_from_document
from headway.model.lease import Fence, Lease, Refuse
from headway.model.run import Prediction, RunState
from headway.model.run_file import LogPiece
from headway.run.outputs import OUTPUTS_FOLDER
from headway.run.rendezvous import Meeting, own_address
from headway.runtime import secretfiles
from headway.runtime.errors import PolicyViolation
from headway.runtime.logfile import read_chunk
from headway.runtime.redact import FileRedactor, Redactor
from headway.settings import Settings
from headway.site import Site, as_ids
from headway.staging.cache import StagedDataset
from headway.trees import remove, stats_below

PIECE_BYTES = 1 << 18


def log_piece(
    settings: Settings, run_id: str, attempt: int, offset: int, *, whole: bool = False
) -> LogPiece:
    """What the log has from *offset* on, at most `PIECE_BYTES` of it and what a secret takes.

    The run's secrets are struck out. What they are is known while its container is there; then its
    file is free of them.

    It is empty where nothing more is there yet, or no file. The beginning of what may become a
    secret is held back, so that the next piece begins with it.

    Args:
        settings: Of this node.
        run_id: The run.
        attempt: Its attempt.
        offset: Where to go on.
        whole: Nothing more will come: then nothing is held back.
    """
    path = log_path(settings, run_id, attempt)
    # Read before the log: as long as one is in it, its value is here.
    secrets = secretfiles.read(settings.secrets_dir / container_name(run_id, attempt))
    redactor = Redactor(secrets)
    # Whoever asks from the middle of a secret on must not be given its end.
    begin = max(0, offset - redactor.longest)
    most = offset - begin + PIECE_BYTES + redactor.longest
    chunk = read_chunk(path, begin, most)
    first = chunk.next_offset - len(chunk.data)
    clean = redactor.feed(chunk.data)
    if whole and len(chunk.data) < most:
        clean += redactor.rest()
    return LogPiece(clean[max(0, offset - first) :], max(offset, first))


def log_bytes(path: Path) -> int | None:
    """How long the log is now; None where no file is."""
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


USER_FOLDERS = ("data", "log")
"""What a service that keeps state expects in a user's folder; /tmp is each run's own."""
CHECKPOINT_FOLDER = "checkpoint"
"""In a run's folder: what a retry goes on from."""


_CHECKPOINT_FILES = 1000


def container_name(run_id: str, attempt: int) -> str:
    """The one name of an attempt's container: one name, so one container, whatever dies."""
    return f"headway-{run_id}-{attempt}"


def log_path(settings: Settings, run_id: str, attempt: int | str) -> Path:
    """The file on this node that gets what the program of an attempt prints."""
    return settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"


def connected_note(settings: Settings, run_id: str) -> Path:
    """The file that is new as long as somebody is connected to a port of the run."""
    return settings.runs_dir / run_id / "connected"


class NodeAttempt:
    """The current attempt of one run, on this node: what is known of it."""

    def __init__(self, site: Site, run_id: str, meeting: Meeting | None = None) -> None:
        """Take up the run, as the ledger has it.

        Args:
            site: This node's.
            run_id: The run.
            meeting: Where a rank of a gang meets the others.

        Raises:
            RunUnknown: The ledger has no such run.
            InvalidInput: Its job cannot be read any more.
            LeaseLost: It has ended, or another node has it.
        """
        self.site = site
        self.run_id = run_id
        record = self.taken_up = self.record
        job = job_from_document(record.job)
        # Where its claim was given back it is that of the smallest, and does not begin.
        self.size = (record.size or job.sizes[0]) if job.is_elastic else None
        """What was chosen of the sizes that its job allows; None where that has but one."""
        self.may_spread = max(size.nodes for size in job.sizes) > 1
        """Whether another attempt of it may be over several nodes."""
        own = job if self.size is None else job.of_size(self.size)
        self.job = own.belonging_to(record.owner, record.team)
        self.number = record.attempt
        self.override = record.demand_override or {}
        self.prediction = record.prediction or Prediction()
        """What was said before the start."""
        self.lease = self._take_up(record)
        self.datasets: dict[str, StagedDataset] = {}
        """Its data sets that are on this node, by their names in the job."""
        self.meeting = meeting
        """Where it meets the other ranks of its gang; None for a job on one node."""

    def _take_up(self, record: RunRecord) -> Lease | None:
        """The lease of this attempt, whose claim is taken up here; None where it has none.

        Raises:
            LeaseLost: The run has ended; or it was granted on another node since, or given back
                at this moment.
        """
        leases = self.site.ledger.leases
        if record.state is RunState.ENDED:
            raise LeaseLost(self.run_id, self.number, "somebody has ended the run")
        lease = leases.of_run(self.run_id)
        if lease is None or lease.attempt != self.number:
            return None  # the attempt before has not let go of its own yet
        if lease.node != self.site.settings.node:
            raise LeaseLost(self.run_id, self.number, f"it is held on node {lease.node}")
        leases.take_up(lease.fence)
        return lease

    @property
    def fence(self) -> Fence:
        """Its right to write into the ledger."""
        return self.lease.fence if self.lease is not None else Fence(self.run_id, self.number)

    @property
    def container(self) -> str:
        """Name of this attempt's container."""
        return container_name(self.run_id, self.number)

    @property
    def is_rank(self) -> bool:
        """Whether this is a part of a gang that another node's run leads."""
        return self.meeting is not None and self.meeting.rank > 0

    @property
    def record(self) -> RunRecord:
        """The run as the ledger has it now."""
        return self.site.ledger.runs.get(self.run_id)

    @property
    def forecaster(self) -> Forecaster:
        """Asked about the nodes as they are now."""
        return Forecaster(self.site)

    @property
    def dataset_bytes(self) -> int | None:
        """Real size of its staged data; None without any."""
        sizes = [each.size_bytes for each in self.datasets.values()]
        return sum(sizes) if sizes else None

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

    @property
    def working_copy(self) -> Path:
        """Where the copy of its code lies that its container starts in."""
        return self.site.settings.work_dir / self.container

    @property
    def written_folders(self) -> tuple[tuple[Path, str], ...]:
        """Where its program writes files of its own: what each folder is in, and its name there."""
        own, copy = self.folder, self.working_copy
        return (own, OUTPUTS_FOLDER), (own, CHECKPOINT_FOLDER), (copy.parent, copy.name)

    @cached_property
    def user(self) -> str:
        """``uid:gid`` of its program: its team's, or whom its folders here belong to already.

        What an attempt of an earlier version wrote stays readable to the next one.
        """
        return _owner(self.folder / "log") or self.site.user_of(self.job.team)

    @cached_property
    def maker(self) -> str:
        """``uid:gid`` that makes its environment: no program's uid, in the program's group."""
        return self.site.maker_of(self.job.team, self.user)

    def made(self, name: str) -> Path:
        """A directory of the run that is the program's user's alone."""
        have_passable(self.folder)
        folder = self.folder / name
        self.have_own(folder)
        return folder

    def told(self, about: str, file: str, content: str) -> Path:
        """A folder in which the program finds *file* with *content*, which it alone may read.

        The folder is headway's. In one of its user's another program of the team could put a link
        in the place of the file, and be given what that leads to.
        """
        folder = self.folder / TOLD_FOLDER / about
        have_passable(folder)
        replace_file(folder / file, content, mode=0o400, lasts=False, owner=as_ids(self.user))
        return folder

    def have_own(self, folder: Path) -> None:
        """Have *folder*, which is the program's user's alone."""
        folder.mkdir(mode=0o700, exist_ok=True)
        user = as_ids(self.user)
        if user is not None:
            os.chown(folder, *user, follow_symlinks=False)

    @cached_property
    def user_folders(self) -> dict[str, Path]:
        """What its owner keeps on this node from run to run, by name; none unless the job asks.

        Raises:
            InvalidInput: Nobody has said whose run it is.
        """
        if not self.job.user_folder:
            return {}
        team, owner = self.job.team, self.job.owner
        if not owner:
            raise InvalidInput("owner", "", "a user_folder is its owner's, and this run has none")
        # Both are names by the rules of a job, so each is one part of a path.
        above = self.site.settings.users_dir / team / owner
        return {name: above / name for name in USER_FOLDERS}

    def made_user_folders(self) -> dict[str, Path]:
        """The same, each of them the program's user's alone.

        The folder above them is headway's, so that no program puts a link in the place of one.
        """
        for folder in self.user_folders.values():
            have_passable(folder.parent)
            self.have_own(folder)
        return self.user_folders

    def membership(self) -> Membership | None:
        """Which member of which array it is, or its gang; None for a run of its own."""
        record = self.taken_up
        if record.gang_id is not None:
            record = self.site.ledger.runs.get(record.gang_id)
        if record.array_id is None or record.array_index is None:
            return None
        array = self.site.ledger.arrays.get(record.array_id)
        parameters = kept_array(array).parameters(record.array_index)
        return Membership(array.array_id, record.array_index, array.size, parameters)

    def container_exists(self) -> bool:
        """Whether its container was created, and not removed yet."""
        return self.site.runtime.inspect(self.container) is not None

    def meet(self, lease: Lease) -> Meeting | None:
        """Lead the job's gang from this node; None for a job on one node."""
        nodes = self.job.nodes
        if nodes > 1 and self.meeting is None:
            port = self.meeting_port(lease)
            # On a network of gangs the container's address is known once it runs; until
            # then, and to itself, its head goes by its own name.
            on_network = isinstance(self.network(), GangNetwork)
            address = self.container if on_network else own_address(self.site.settings)
            self.meeting = Meeting(self.run_id, self.number, address, port, 0, nodes)
        return self.meeting

    def meeting_port(self, lease: Lease) -> int:
        """The port of this node that is its gang's alone."""
        return next(port for port in lease.ports if port not in self.job.ports)

    def place(self, port: int) -> str:
        """Where the others of its gang reach *port* of its container; empty if that has ended."""
        address = own_address(self.site.settings)
        if isinstance(self.network(), GangNetwork):
            status = self.site.runtime.inspect(self.container)
            address = status.address if status is not None else ""
        return address and f"{address}:{port}"

    def network(self) -> NetworkMode | GangNetwork | None:
        """The network its container joins; raises `PolicyViolation` where the site has none."""
        found = self.forecaster.network(self.job.nodes, self.job.team)
        if isinstance(found, Refuse):
            raise PolicyViolation("network", f"{found.value} node(s)", found.allowed)
        return found


def _owner(folder: Path) -> str:
    """``uid:gid`` of a program's folder; empty where there is none, or it is still root's."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return ""
    if os.geteuid() != 0 or found.st_uid == 0:
        return ""
    return f"{found.st_uid}:{found.st_gid}"


def forget_secrets(settings: Settings, container: str) -> None:
    """Redact the secrets of *container*, which is gone, in its log, and remove them."""
    folder = settings.secrets_dir / container
    run_id, _, attempt = container.removeprefix("headway-").rpartition("-")
    with suppress(OSError):  # what lies there is no log; the secrets go in any case
        FileRedactor(log_path(settings, run_id, attempt), secretfiles.read(folder)).redact()
    secretfiles.remove(folder)


def checkpoint_age_s(site: Site, run_id: str) -> float | None:
    """Seconds since a run last wrote into its checkpoint here; None where there is nothing.

    Of the first files at most: a folder with very many is not read through for this.
    """
    folder, newest = site.settings.runs_dir / run_id / CHECKPOINT_FOLDER, None
    with suppress(OSError):  # there is none
        for stat in islice(stats_below(folder), _CHECKPOINT_FILES):
            if not S_ISDIR(stat.st_mode):
                newest = max(newest or 0.0, stat.st_mtime)
    return None if newest is None else max(site.clock.now().timestamp() - newest, 0.0)


def forget_checkpoint(settings: Settings, run_id: str) -> None:
    """Remove the checkpoint of a run that ended well; from any other a retry goes on."""
    with suppress(OSError):  # it goes with the run's folder
        remove(settings.runs_dir / run_id / CHECKPOINT_FOLDER)
