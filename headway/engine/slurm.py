"""Slurm, by its own commands, as the user who runs them, or as whom they are run.

All jobs are asked for by one `squeue --me`, which the controller answers with this user's jobs
only. Root, whose site submits as its members, asks for everybody's, and takes none for a member's
that is another user's, whatever comment it has. What changes anything (`sbatch`, `scancel`) is run
as the member: Slurm then lets it do what it lets the member do. Its ``--json`` is not used: in
22.05 it ignores every filter and sends the whole cluster's queue (`man squeue`), it needs a plug-in
that not every site builds, and its fields change their types from version to version. A job is
known by its comment, ``headway:SITE:KEY``.
"""

import math
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from headway.clock import Clock
from headway.engine.errors import EngineAway, EngineRefused
from headway.engine.folder_engine import FolderEngine
from headway.engine.judge import Given, Seen
from headway.engine.login import Login
from headway.engine.place import KEY, Place
from headway.engine.port import After, Array, Cluster, Gang, Nice, Part, Phase, Request, Requeue
from headway.engine.slurm_inspect import cluster, seconds
from headway.engine.slurm_limits import Ends, Limits, is_limit, read_limits
from headway.engine.slurm_options import minutes, options
from headway.engine.slurm_states import read_reason, read_state
from headway.units import MINUTE_S

_COLUMNS = (
    "%i", "%F", "%K", "%T", "%r", "%S", "%l", "%N", "%e", "%q", "%a", "%P", "%y", "%E", "%U", "%k",
)  # fmt: skip
_WIDTH = len(_COLUMNS)
_UID = _COLUMNS.index("%U")
_ANSWERS_WITHIN_S = 60.0
_LIMITS_EVERY_S, _BRIEF_S = 60.0, 5.0
_AWAY = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset|timed out)|zero bytes|standby"
    r"|temporarily|munge|communication|controller|protocol|try again",
    re.IGNORECASE,
)
"""What Slurm's commands say when it is not the request that is wrong."""
_FOLLOWED = re.compile(r":(\d+)")
"""The jobs in ``afterok:12(unfulfilled),afterany:13_*(unfulfilled)``."""
_ID = re.compile(r"[1-9][0-9]{0,9}(_[0-9]{1,9})?")
"""Of a job, or of a member of an array. At any other word `scancel` ends before it cancels any."""
_NOT_RUN = (126, 127)
"""What a shell ends with, or the loader of libraries, when a program does not start."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
_OF_SLURM = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_")
_OF_USER = "SLURM_JWT"
"""How the variables begin by which `sbatch` finds the cluster, and says who asks; those of a job
that headway itself may run in say of another one."""
_NAMES = """\
unset SLURM_JWT
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export HEADWAY_JOB="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"
export HEADWAY_MEMBER="$SLURM_ARRAY_TASK_ID" HEADWAY_RESTART="${SLURM_RESTART_COUNT:-0}\""""
_SPREAD = ("srun", "--export=ALL", "--ntasks-per-node=1", "--kill-on-bad-exit=1")


class SlurmEngine(FolderEngine):
    """Port `Engine` on a submit host of a cluster that Slurm schedules."""

    takes: frozenset[type[Part]] = frozenset({Array, Gang, After, Nice, Requeue})

    name = "Slurm"
    _names = _NAMES
    _spread = _SPREAD
    _rank_variable = "SLURM_PROCID"
    _for_memory = re.compile(r"exceeded (job |step )?memory limit|oom.kill event", re.IGNORECASE)

    def __init__(self, place: Place, site: str, clock: Clock) -> None:
        """See `FolderEngine`."""
        super().__init__(place, site, clock)
        self._limits: dict[str, tuple[float, Limits]] = {}
        """By uid: until when they hold, and those of the user's QOS and accounts."""

    def inspect(self) -> Cluster:
        """Its partitions, nodes, GPUs and limits: three questions."""
        nodes = self._ask("sinfo", "-h", "-N", "-o", "%N|%R|%G|%c|%m|%T")
        pools = self._ask("scontrol", "show", "partition", "--oneliner")
        return cluster(nodes, pools, self._ask("scontrol", "show", "config"))

    def _given(self, request: Request, follows: tuple[str, ...] | None) -> Given:
        limit_s, nice = request.time_limit_s, request.part(Nice)
        asked_s = None if limit_s is None else minutes(limit_s, request.grace_s) * MINUTE_S
        return Given(request.pool, asked_s, nice.value if nice else 0, follows)

    def _submit(self, request: Request, script: Path, ids: Mapping[str, str]) -> str:
        given = options(request, f"headway:{self._site}:{request.key}", ids)
        name = "batch.%a.log" if request.part(Array) else "batch.log"
        own = self._place.wrote(request.key)
        places = [f"--chdir={script.parent}", f"--output={own}/{name}"]
        words, login = ("sbatch", *given, *places, str(script)), request.login
        answer = self._ask(*words, key=request.key, env=_environment(login), login=login)
        engine_id = answer.strip().split(";")[0]
        if _ID.fullmatch(engine_id) is None:  # its user may have had a hand in what it says
            raise EngineAway(self.name, "sbatch", "it gave the job no number")
        return engine_id

    def _ask_to_stop(self, which: Sequence[tuple[str, int]], login: Login | None) -> None:
        self._cancel(which, login, "--state=PENDING")
        self._cancel(which, login, "--batch", "--signal=TERM")

    def _kill(self, which: Sequence[tuple[str, int]], login: Login | None) -> None:
        self._cancel(which, login)

    def _cancel(self, which: Sequence[tuple[str, int]], login: Login | None, *words: str) -> None:
        ids = [name for each in which if _ID.fullmatch(name := _named(*each))]
        env = None if login is None else _environment(login)
        if ids:
            self._ask("scancel", "--quiet", *words, *ids, env=env, login=login)

    def _queue(self) -> dict[str, dict[tuple[str, int], Seen]]:
        """By key, and by id and member: this site's jobs as Slurm has them now."""
        asked = ["squeue", "--noheader", "--array", "--states=all"]
        asked += [] if os.geteuid() == 0 else ["--me"]
        # A job's user writes some of the columns, and could else write the line of another job. As
        # a variable, since everybody may read the words of a command.
        field, end = (f"{each}{token_hex(8)}" for each in "\x1f\x1e")
        answer = self._ask(*asked, env=_told(SQUEUE_FORMAT=field.join(_COLUMNS) + end))
        found: dict[str, dict[tuple[str, int], Seen]] = {}
        mark = f"headway:{self._site}:"
        lines = answer.split(end + "\n")
        rows = [row for line in lines if len(row := line.split(field)) == _WIDTH]
        own = [row for row in rows if self._is_theirs(row, mark)]
        users = {row[_UID] for row in own if is_limit(row[4])}
        known = {user: self._known_limits(user) for user in users}
        ends = {
            user: _first_ends([row for row in rows if row[_UID] == user])
            for user in users if known[user]
        }  # fmt: skip
        for columns in own:
            key, user = columns[-1].removeprefix(mark), columns[_UID]
            base, member = columns[1], columns[2]
            where = base, int(member) if member.isdigit() else 0
            seen = _seen(columns, known.get(user, {}), ends.get(user, {}))
            found.setdefault(key, {})[where] = seen
        return found

    def _is_theirs(self, row: Sequence[str], mark: str) -> bool:
        """Whether it is a job of its key's user: any user may write any comment."""
        comment = row[-1]
        key = comment.removeprefix(mark)
        is_key = comment.startswith(mark) and KEY.fullmatch(key) is not None
        return is_key and row[_UID] == str(self._place.uid(key))

    def _known_limits(self, uid: str) -> Limits:
        """Those of the user's QOS and accounts; none where Slurm does not tell them."""
        until_s, limits = self._limits.get(uid, (-math.inf, {}))
        if (now_s := self._clock.monotonic_s()) >= until_s:
            limits = {}
            with suppress(EngineAway, KeyError):  # some clusters show them to operators only
                me = pwd.getpwuid(int(uid))
                asked = ["scontrol", "show", "assoc_mgr", "flags=qos,assoc", "--oneliner"]
                asked.append(f"users={me.pw_name}")
                limits = read_limits(self._ask(*asked, within_s=_BRIEF_S), me.pw_name, me.pw_uid)
            self._limits[uid] = now_s + _LIMITS_EVERY_S, limits
        return limits

    def _ask(
        self,
        program: str,
        *words: str,
        key: str = "",
        env: Mapping[str, str] | None = None,
        login: Login | None = None,
        within_s: float = _ANSWERS_WITHIN_S,
    ) -> str:
        """What *program* answers, which is run as *login*, if that is given, in its environment.

        Raises:
            EngineAway: It does not, in time.
            EngineRefused: It was to submit the job *key*, and Slurm does not want it.
        """
        who: dict[str, Any] = {}
        if login is not None:
            groups = os.getgrouplist(login.name, login.gid)
            who = {"user": login.uid, "group": login.gid, "extra_groups": groups}
        try:
            done: subprocess.CompletedProcess[bytes] = subprocess.run(
                [shutil.which(program) or program, *words],
                env=_told() if env is None else env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=within_s,
                check=False,
                **who,
            )
        except subprocess.TimeoutExpired:
            raise EngineAway(self.name, program, f"nothing for {within_s:.0f} s") from None
        except OSError as error:
            raise EngineAway(self.name, program, error.strerror or str(error)) from error
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        said = " ".join(done.stderr.decode(errors="replace").split())
        if program == "scancel" and not _AWAY.search(said):
            return ""  # some have ended meanwhile
        if key and done.returncode not in _NOT_RUN and not _AWAY.search(said):
            raise EngineRefused(self.name, key, said.replace("sbatch: error: ", ""))
        raise EngineAway(self.name, program, said or f"exit code {done.returncode}")


def _told(**more: str) -> dict[str, str]:
    """For a question: as this process, with answers as they are read here."""
    usual = {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    # A filter or another format of whoever started headway would hide jobs.
    own = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    return {**own, **usual, **more}


def _environment(login: Login | None) -> dict[str, str]:
    """What a job is given beside its own: nothing of headway's, which has the site's secrets."""
    starts = _OF_SLURM if login else (*_OF_SLURM, _OF_USER)
    own = {name: value for name, value in os.environ.items() if name.startswith(starts)}
    if login is None:
        me = pwd.getpwuid(os.getuid())
        who = {"HOME": me.pw_dir, "USER": me.pw_name, "LOGNAME": me.pw_name}
        who |= {name: os.environ[name] for name in who if name in os.environ}
    else:
        who = {"HOME": login.home, "USER": login.name, "LOGNAME": login.name}
    found = str(Path(shutil.which("sbatch") or _PATH).parent)  # there are srun's, too
    path = _PATH if found in _PATH.split(":") else f"{_PATH}:{found}"
    return {"PATH": path, **who, **own}


def _named(engine_id: str, member: int) -> str:
    return f"{engine_id}_{member}" if member else engine_id


def _first_ends(rows: Sequence[Sequence[str]]) -> Ends:
    """By QOS and by account: when the first of these jobs that runs ends at its limit."""
    found: dict[tuple[str, str], datetime] = {}
    for row in rows:
        is_limited = row[3] == "RUNNING" and seconds(row[6]) is not None
        if is_limited and (end := _time(row[8])) is not None:
            for where in (("QOS", row[9]), ("Assoc", row[10])):
                found[where] = min(end, found.get(where, end))
    return found


def _seen(columns: Sequence[str], known: Limits, ends: Ends) -> Seen:
    engine_id, _, _, state, code, start, limit, nodes, _, qos, account, pool, nice, after, *_ = (
        columns
    )
    phase, kind, sentence = read_state(state, code)
    waits = phase in {Phase.WAITING, Phase.HELD}
    at = _time(start)
    return Seen(
        engine_id, state, phase, kind, sentence,
        read_reason(code, {"QOS": qos, "Assoc": account}, known, ends),
        started_at=None if waits else at,
        expected_start_at=at if waits else None,
        time_limit_s=seconds(limit),
        nodes=nodes,
        given=Given(pool, seconds(limit), int(nice), tuple(_FOLLOWED.findall(after))),
    )  # fmt: skip


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
