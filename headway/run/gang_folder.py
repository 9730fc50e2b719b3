"""What a part of a gang is told once all of them run, and what they ask each other to run.

Where a program has to know all places it is started by a few lines of `sh` that wait for a file.
Where rank 0's program starts all others, as `mpirun` does, it finds an `ssh` that asks headway:
what a part leaves in a folder of its own goes through the ledger into the container of another.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from headway.durable import replace_file
from headway.home import GANG_FOLDER, have_passable
from headway.ledger.gang_asks import MOST_ASKS, GangAsk
from headway.model.launch import filled, host_file, joined, open_mpi_network, tf_config
from headway.model.node import FREE_PORTS
from headway.pinning import LOOPBACK
from headway.run.here import NodeAttempt
from headway.run.rendezvous import Meeting
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import BindMount
from headway.site import as_ids
from headway.trees import remove
from headway.units import format_size

GANG, ASKS = "/opt/headway/gang", "/opt/headway/gang-asks"
_ENTRY, _SSH = (Path(__file__).with_name(name) for name in ("gang_entry.sh", "gang_ssh.sh"))
_PLACE = re.compile(r"[0-9A-Za-z._:-]+:[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9]{1,32}")
_EXIT_CODE = re.compile(r"([0-9]{1,3})( oom)?\s?", re.ASCII)
_HOSTS = "hosts"
_CHOOSES_NETWORKS = re.compile("_if_(include|exclude)")
"""Option or variable of Open MPI, which refuses to be told both what to use and what not to use."""
_MOST_BYTES = 64 * 1024
"""Of one command."""
_CANNOT = 255
"""What ssh ends with when it could not do what it was asked."""


def gang_folder(attempt: NodeAttempt) -> Path:
    """The folder of this attempt. It is headway's, so that no program puts a link into it."""
    return attempt.folder / f"{GANG_FOLDER}{attempt.number}"


def asks_folder(attempt: NodeAttempt) -> Path:
    """The folder into which its program writes what it asks for, and how that ended."""
    return attempt.folder / f"{GANG_FOLDER}{attempt.number}-asks"


def entry_of(attempt: NodeAttempt) -> tuple[tuple[str, ...], tuple[BindMount, ...]]:
    """Words before the command, and mounts; none where the program needs to know no places."""
    launch = attempt.job.launch
    if attempt.meeting is None and launch.starts_others:  # it is told its hosts as those of a gang
        return (), (BindMount(attempt.told("gang", _HOSTS, _hosts(attempt, ["localhost"])), GANG),)
    if attempt.meeting is None or not launch.gathers:
        return (), ()
    mounts = _mounts(attempt)
    have_passable(mounts[0].source.parent)
    # Its program looks for what comes, and nobody else: launchers put keys into commands.
    _have(mounts[0].source, _readers(attempt))
    attempt.have_own(mounts[1].source)
    paths = map(attempt.site.runtime.path_in_container, mounts)
    return ("/bin/sh", "-c", _ENTRY.read_text(), "headway", *paths), mounts


def _mounts(attempt: NodeAttempt) -> tuple[BindMount, BindMount]:
    asks = BindMount(asks_folder(attempt), ASKS, read_only=False)
    return BindMount(gang_folder(attempt), GANG), asks


def command_of(attempt: NodeAttempt) -> list[str]:
    """Program and arguments of this part; one on one node is rank 0 of 1."""
    job = attempt.job
    alone = Meeting(attempt.run_id, attempt.number, LOOPBACK[0], FREE_PORTS.first, 0, 1)
    if job.launch.starts_others:
        path = attempt.site.runtime.path_in_container(entry_of(attempt)[1][0])
        return filled(job.command, {"hosts": f"{path}/{_HOSTS}"})
    return (attempt.meeting or alone).command(job.launch, job.command)


def tell(attempt: NodeAttempt, places: Sequence[str], rank: int) -> None:
    """Let the program of part *rank* begin, which finds the others at *places*. Idempotent.

    Raises:
        RuntimeFailure: A place is none, or two are one: nobody could be told apart.
    """
    launch, addresses = attempt.job.launch, addresses_of(places)
    folder, readers = gang_folder(attempt), _readers(attempt)
    path, asks = map(attempt.site.runtime.path_in_container, _mounts(attempt))
    if launch.starts_others:
        if len(set(addresses)) < len(addresses):
            raise RuntimeFailure(
                f"parts of the gang share an address ({', '.join(addresses)}): {launch} tells them "
                "apart by it. Run them on several machines, or with an engine"
            )
        _have(folder / "bin", readers)
        _put(folder / "bin/ssh", _SSH.read_text(), readers, 0o750)
        _put(folder / _HOSTS, _hosts(attempt, addresses), readers)
        hosts = f"{path}/{_HOSTS}"
        values = {
            "HEADWAY_GANG_ASKS": asks,
            "HEADWAY_HOSTS": hosts,
            # Open MPI 4, Open MPI 5, MPICH and what is made of it.
            "OMPI_MCA_orte_default_hostfile": hosts,
            "PRTE_MCA_prte_default_hostfile": hosts,
            "HYDRA_HOST_FILE": hosts,
        }
        if not any(map(_CHOOSES_NETWORKS.search, (*attempt.job.command, *attempt.job.env))):
            values |= open_mpi_network(addresses)
        lines = [f'export PATH={shlex.quote(path)}/bin:"$PATH"', f"serves={'yes' * (rank > 0)}"]
    else:
        ports = [place.rpartition(":")[2] for place in places]
        workers = [joined(*each) for each in zip(addresses, ports, strict=True)]
        values, lines = {"TF_CONFIG": tf_config(workers, rank)}, []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    _put(folder / "go", "".join(f"{line}\n" for line in lines), readers)


def _hosts(attempt: NodeAttempt, addresses: Sequence[str]) -> str:
    """Of the GPUs that it was granted: on the CPU in their place it is one process a node."""
    gpus = len(attempt.lease.gpus) if attempt.lease is not None else attempt.job.gpus
    return host_file(addresses, attempt.job.launch.processes(gpus))


def addresses_of(places: Sequence[str]) -> list[str]:
    """Addresses of *places*; raises `RuntimeFailure` for what is no place."""
    for place in places:
        if _PLACE.fullmatch(place) is None:
            raise RuntimeFailure(f"a part of the gang is said to be at {place!r}: no such place")
    return [place.rpartition(":")[0] for place in places]


def forget_gang_folder(attempt: NodeAttempt) -> None:
    """Remove what was told and asked, where the gang was told anything."""
    if attempt.job.launch.gathers and attempt.job.nodes > 1:
        for folder in (gang_folder(attempt), asks_folder(attempt)):
            with suppress(OSError):  # it goes with the run's folder
                remove(folder)


class GangPost:
    """Passes on what this part of a gang asks of others, and others of it."""

    def __init__(self, attempt: NodeAttempt, gang_id: str, rank: int) -> None:
        """For part *rank* of the gang that run *gang_id* leads; its container runs."""
        self._attempt, self._gang_id, self._rank = attempt, gang_id, rank
        self._asks, self._told = asks_folder(attempt), gang_folder(attempt)
        self._readers = _readers(attempt)
        self._ranks: dict[str, int] = {}
        self._asked_enough = False

    def pass_on(self) -> None:
        """Do so once.

        Raises:
            LedgerUnreachable: It is to be tried again.
            LeaseLost: Another attempt has the run.
        """
        ledger, attempt = self._attempt.site.ledger, self._attempt
        for name in self._new("ask"):
            self._ask(name)
        asks = ledger.gang_asks.of(self._gang_id, attempt.number)
        for each in asks:
            if each.to_rank == self._rank and each.exit_code is None:
                self._serve(each)
            if each.from_rank == self._rank and each.exit_code is not None:
                self._tell(f"{each.name}.exit", str(each.exit_code))

    def _ask(self, name: str) -> None:
        host, _, command = (_read(self._asks / f"{name}.ask") or "").partition("\n")
        to_rank, asks = self._rank_at(host), self._attempt.site.ledger.gang_asks
        why = ""
        if not host or "\0" in command:  # no shell can be given a NUL, nor PostgreSQL keep it
            why = f"the command is no text, or longer than {format_size(_MOST_BYTES)}"
        elif to_rank is None:
            why = "it is the address of no part of this gang"
        elif self._asked_enough or not asks.ask(self._attempt.fence, name, to_rank, command):
            self._asked_enough = True  # the ledger is not asked again by a program that goes on
            why = f"this attempt has asked for {MOST_ASKS} commands already"
        if why:
            self._tell(f"{name}.why", why)
            self._tell(f"{name}.exit", str(_CANNOT))
        self._tell(f"{name}.asked", "")

    def _rank_at(self, host: str) -> int | None:
        if not self._ranks:
            runs = self._attempt.site.ledger.runs
            parts = [runs.get(self._gang_id), *runs.ranks(self._gang_id, self._attempt.number)]
            places = [part.place or "" for part in parts]
            self._ranks = {address: n for n, address in enumerate(addresses_of(places))}
        return self._ranks.get(host)

    def _serve(self, ask: GangAsk) -> None:
        number = str(ask.ask_id)
        if not (self._told / f"{number}.run").exists():
            command = self._attempt.site.ledger.gang_asks.command(ask.ask_id)
            if command is None:
                return
            self._tell(f"{number}.run", command)
        found = _read(self._asks / f"{number}.done")
        if found is not None:
            told = _EXIT_CODE.fullmatch(found)
            code, ran_out = (int(told[1]) % 256, bool(told[2])) if told else (_CANNOT, False)
            asks = self._attempt.site.ledger.gang_asks
            asks.ended(self._attempt.fence, ask.ask_id, code, ran_out=ran_out)

    def _new(self, kind: str) -> Iterator[str]:
        """Names of the program's files of this kind that were not passed on yet."""
        with os.scandir(self._asks) as entries:  # a program may have made millions
            some = islice(entries, 10 * MOST_ASKS)
            names = [each.name for each in some if each.name.endswith(f".{kind}")]
        for name in sorted(names)[:MOST_ASKS]:
            stem = name.removesuffix(f".{kind}")
            if _NAME.fullmatch(stem) and not (self._told / f"{stem}.asked").exists():
                yield stem

    def _tell(self, name: str, content: str) -> None:
        path = self._told / name
        if not path.exists():
            _put(path, content, self._readers)


def _readers(attempt: NodeAttempt) -> int:
    """The group of its program, which is its team's alone; -1 for this process's."""
    user = as_ids(attempt.user)
    return -1 if user is None else user[1]


def _have(folder: Path, readers: int) -> None:
    """Have *folder*, which the group *readers* may look into."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, -1, readers, follow_symlinks=False)
    folder.chmod(0o750)


def _put(path: Path, content: str, readers: int, mode: int = 0o640) -> None:
    """Put a file where a program looks, which may read it with the group *readers*."""
    replace_file(path, content, mode=mode, lasts=False, owner=(-1, readers))


def _read(path: Path) -> str | None:
    """A program's own file: no link is followed, nothing else is waited for; None without it.

    Empty where it is no text or too long: a part of a command is another command.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(_MOST_BYTES + 1)
    try:
        return content.decode() if len(content) <= _MOST_BYTES else ""
    except UnicodeDecodeError:
        return ""
