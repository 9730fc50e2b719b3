"""An engine in memory. Its programs are real processes of this machine, by the real wrapper."""

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.errors import EngineAway
from headway.engine.folder_engine import FolderEngine, Queue, as_wished
from headway.engine.judge import IN_VAIN, Seen
from headway.engine.login import Login
from headway.engine.port import (
    After,
    Array,
    Cluster,
    Gang,
    Nice,
    Part,
    Phase,
    Reason,
    Request,
)
from headway.model.engine import EngineNode, EnginePool
from headway.model.run import ExitKind, When
from headway.units import GIB

POOL = "fake"
_SPREAD = (
    'ps=""; trap "kill \\$ps" TERM; r=0; '
    'while [ $r -lt $FAKE_NODES ]; do FAKE_RANK=$r "$@" & ps="$ps $!"; r=$((r+1)); done; '
    "code=0; for p in $ps; do wait $p || code=$?; done; exit $code"
)


@dataclass
class _Entry:
    """One job, or one member of an array."""

    site: str
    engine_id: str
    member: int
    request: Request
    script: Path
    follows: Mapping[str, When]
    """By the id of another: how it has to have ended."""
    phase: Phase = Phase.WAITING
    kind: ExitKind | None = None
    said: str = ""
    restart: int = 0
    program: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0

    @property
    def nodes(self) -> int:
        return (self.request.part(Gang) or Gang(1)).nodes

    def start(self) -> None:
        env = {"PATH": os.environ["PATH"], "FAKE_NODES": str(self.nodes)}
        env |= {"HEADWAY_JOB": self.engine_id, "HEADWAY_RESTART": str(self.restart)}
        env |= {"HEADWAY_MEMBER": str(self.member)} if self.member else {}
        self.program = subprocess.Popen(["sh", str(self.script)], env=env)
        self.phase, self.started_s = Phase.RUNNING, time.monotonic()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.program is not None and self.program.poll() is None:
            self.program.send_signal(number)

    def follow(self) -> None:
        """See whether it has ended, or has to."""
        limit_s = self.request.time_limit_s
        if limit_s is not None and time.monotonic() - self.started_s > limit_s and not self.kind:
            self.kind = ExitKind.TIMED_OUT
            self.stop()
        code = self.program.poll() if self.program is not None else 0
        if code is not None:
            self.phase = Phase.ENDED
            self.kind = self.kind or (ExitKind.FAILED if code else ExitKind.OK)


@dataclass
class FakeCluster:
    """Two nodes, each for two jobs; what an engine's own commands do is a method here."""

    slots: int = 4
    is_away: bool = False
    questions: int = 0
    """How often its queue was asked for."""
    _entries: list[_Entry] = field(default_factory=list)
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, site: str, request: Request, script: Path, follows: Mapping[str, When]) -> str:
        """Take a job; its id."""
        with self.lock:
            engine_id = f"{next(self._ids)}"
            array = request.part(Array)
            for member in range(1, array.members + 1) if array else (0,):
                entry = _Entry(site, engine_id, member, request, script, follows)
                self._entries.append(entry)
            self._tick()
            return engine_id

    def entries(self, engine_id: str = "", member: int = 0) -> list[_Entry]:
        """Those of an id, or all; as they are now."""
        engine_id, _, number = engine_id.partition("_")
        member = int(number or member)
        with self.lock:
            self._tick()
            return [
                each
                for each in self._entries
                if engine_id in {"", each.engine_id} and member in {0, each.member}
            ]

    def hold(self, engine_id: str) -> None:
        """Let it not start."""
        for each in self.entries(engine_id):
            each.phase = Phase.HELD if each.phase is Phase.WAITING else each.phase

    def release(self, engine_id: str) -> None:
        """Let it start."""
        for each in self.entries(engine_id):
            each.phase = Phase.WAITING if each.phase is Phase.HELD else each.phase

    def cancel(self, engine_id: str, member: int = 0) -> None:
        """End it."""
        for each in self.entries(engine_id, member):
            if each.phase is not Phase.ENDED:
                each.kind, each.said = ExitKind.CANCELLED, "somebody cancelled it"
                each.stop()
                each.phase = Phase.ENDED if each.program is None else each.phase

    def requeue(self, engine_id: str) -> None:
        """End it and begin it anew."""
        for each in self.entries(engine_id):
            if each.program is not None:
                each.stop()
                each.program.wait()
            each.phase, each.kind, each.program = Phase.WAITING, None, None
            each.restart += 1

    def restart(self) -> None:
        """Nothing that is in memory could be lost."""

    def forget_ended(self) -> None:
        """Know nothing more of those that have ended."""
        with self.lock:
            self._entries = [each for each in self.entries() if each.phase is not Phase.ENDED]

    def end(self) -> None:
        """End all programs."""
        for each in self.entries():
            each.stop()
            if each.program is not None:
                each.program.wait()

    def _tick(self) -> None:
        for each in self._entries:
            if each.phase is Phase.RUNNING:
                each.follow()
        for each in self._entries:
            if each.phase is Phase.WAITING:
                each.said = self._why_not(each)
                if not each.said:
                    each.start()

    def _why_not(self, entry: _Entry) -> str:
        for engine_id, when in entry.follows.items():
            others = [each for each in self._entries if each.engine_id == engine_id]
            if any(each.phase is not Phase.ENDED for each in others):
                return "it waits for the end of another job"
            if not as_wished(when, [each.kind for each in others if each.kind]):
                entry.phase, entry.kind = Phase.ENDED, ExitKind.CANCELLED
                return IN_VAIN
        running = [each for each in self._entries if each.phase is Phase.RUNNING]
        if sum(each.nodes for each in running) + entry.nodes > self.slots:
            return "nothing is free"
        array = entry.request.part(Array)
        siblings = sum(each.engine_id == entry.engine_id for each in running)
        full = array is not None and array.at_most is not None and siblings >= array.at_most
        return "as many members of its array run as may at once" if full else ""


class FakeEngine(FolderEngine):
    """Port `Engine` on a `FakeCluster`; several may stand for several processes."""

    name = "the fake"
    takes: frozenset[type[Part]] = frozenset({Array, Gang, After, Nice})
    _names = ":"
    _spread = ("sh", "-c", _SPREAD, "spread")
    _rank_variable = "FAKE_RANK"
    cluster: FakeCluster

    def inspect(self) -> Cluster:
        """Two nodes."""
        nodes = tuple(EngineNode(name, 2, 8 * GIB) for name in ("f1", "f2"))
        return Cluster("1", (EnginePool(POOL, nodes, is_default=True),), 1000, 300.0)

    def _submit(self, request: Request, script: Path, ids: Mapping[str, str]) -> str:
        self._answers("submit")
        follows = {
            ids[part.key]: part.when
            for part in request.parts
            if isinstance(part, After) and part.key in ids
        }
        return self.cluster.add(self._site, request, script, follows)

    def _queue(self) -> Queue:
        self._answers("queue")
        self.cluster.questions += 1
        found: dict[str, dict[tuple[str, int], Seen]] = {}
        for each in self.cluster.entries():
            if each.site == self._site:
                of_key = found.setdefault(each.request.key, {})
                of_key[each.engine_id, each.member] = Seen(
                    each.engine_id, each.phase.upper(), each.phase, each.kind, each.said,
                    Reason(each.said, each.said) if each.said else None,
                    time_limit_s=each.request.time_limit_s,
                )  # fmt: skip
        return found

    def _ask_to_stop(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        self._answers("cancel")
        for engine_id, member in which:
            for each in self.cluster.entries(engine_id, member):
                if each.program is None:
                    self.cluster.cancel(engine_id, each.member)
                each.stop()

    def _kill(self, which: Sequence[tuple[str, int]], _login: Login | None) -> None:
        self._answers("cancel")
        for each in which:
            self.cluster.cancel(*each)

    def _answers(self, command: str) -> None:
        if self.cluster.is_away:
            raise EngineAway(self.name, command, "it is away")
