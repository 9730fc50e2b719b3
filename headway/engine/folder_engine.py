"""What is the same for every engine whose machines share a folder with the submit host.

An adapter adds how a script is submitted, what the queue says and how a job is stopped; that
nothing is submitted twice, and that an end is known when the queue has forgotten it, is done here.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from headway.clock import Clock
from headway.engine.errors import EngineRefused
from headway.engine.judge import NO_TRACE, OVER_MEMORY, Given, Seen, changed, judged
from headway.engine.login import Login
from headway.engine.place import Facts, Place
from headway.engine.port import After, Array, Job, Part, Phase, Request, Submitted, Used
from headway.engine.record import Record
from headway.errors import InvalidInput
from headway.model.run import Exit, ExitKind, When

Queue = Mapping[str, Mapping[tuple[str, int], Seen]]
"""By key, and by the engine's id and member: the jobs of this site as the engine has them now."""
_SEEN_WITHIN_S = 60.0
"""What a machine has written is seen here, whatever the file server keeps."""
_OUTLIVES_S = 10.0
"""So long after its grace a job that was cancelled may need until its record is there."""


class FolderEngine(ABC):
    """Port `Engine` but for `inspect`."""

    name: str
    takes: frozenset[type[Part]]
    _names: str
    """Lines of sh, run in the job, that set HEADWAY_JOB, HEADWAY_MEMBER and HEADWAY_RESTART."""
    _spread: ClassVar[tuple[str, ...]]
    """Words that start what follows them once on each node of an allocation."""
    _rank_variable: ClassVar[str]
    """In which each of these finds its number."""
    _for_memory: ClassVar[re.Pattern[str] | None] = None
    """What its machines say in the job's `batch.log` when they end one for its memory."""

    def __init__(self, place: Place, site: str, clock: Clock) -> None:
        """An adapter for one site.

        Args:
            place: The folder that this host and all nodes of the cluster share.
            site: Name of the installation: others of the same user have jobs of their own.
            clock: For how long something has been so.
        """
        self._place = place
        self._site = site
        self._clock = clock
        self._no_trace_since: dict[tuple[str, int], float] = {}

    @abstractmethod
    def _submit(self, request: Request, script: Path, ids: Mapping[str, str]) -> str:
        """The engine's id of the job *script*, which follows the *ids* of others, by key."""

    @abstractmethod
    def _queue(self) -> Queue:
        """All jobs of this site that the engine knows, by one question."""

    @abstractmethod
    def _ask_to_stop(self, which: Sequence[tuple[str, int]], login: Login | None) -> None:
        """Let none of them, *login*'s all, begin; SIGTERM to the wrappers of those that have."""

    @abstractmethod
    def _kill(self, which: Sequence[tuple[str, int]], login: Login | None) -> None:
        """End them, which are *login*'s all, by the engine's own means."""

    def _given(self, _request: Request, _follows: tuple[str, ...] | None) -> Given | None:
        """As the queue tells it, what the engine is given; None where it does not tell."""
        return None

    def submit(self, request: Request) -> Submitted:
        """See `Engine.submit`: what an earlier try may have left is looked for first."""
        for part in request.parts:
            if type(part) not in self.takes:
                allowed = f"leave it out: {self.name} has nothing like it"
                raise InvalidInput("parts", part, allowed)
        key, place = request.key, self._place
        array = request.part(Array)
        with place.locked(key):
            if array is not None and array.each:
                return self._submit_each(request, array)
            if place.began(key):
                return Submitted(key, place.noted(key), is_new=False)
            if place.was_tried(key):  # what has not begun may be there, or lost
                # One that has ended and left nothing here was another try's, which was let go of.
                for engine_id in _alive(self._known().get(key, {})):
                    place.note(key, engine_id)
                    return Submitted(key, engine_id, is_new=False)
            ids = self._follows(request)
            given = self._given(request, tuple(ids.values()))
            script = place.prepare(request, self._names, self._spread, self._rank_variable, given)
            engine_id = self._submit(request, script, ids)
            place.note(key, engine_id)
            return Submitted(key, engine_id, is_new=True)

    def _submit_each(self, request: Request, array: Array) -> Submitted:
        """Submit those of them together that are not there yet, and were not."""
        key, place = request.key, self._place
        was_tried = any(place.was_tried(one.key) for one in array.each)
        there = self._known() if was_tried else {}
        left = tuple(
            one for one in array.each
            if not place.began(one.key) and not _alive(there.get(one.key, {}))
        )  # fmt: skip
        if not left:
            return Submitted(key, "", is_new=False)
        given = self._names, self._spread, self._rank_variable
        for one in left:
            with place.locked(one.key):
                place.prepare(one, *given, self._given(one, None))
        together = replace(array, members=len(left), each=left)
        parts = tuple(together if part is array else part for part in request.parts)
        request = replace(request, parts=parts)
        script = place.prepare(request, *given)
        try:
            engine_id = self._submit(request, script, self._follows(request))
        except EngineRefused:
            place.forget(key)  # those that were to come with it are submitted otherwise
            raise
        for number, one in enumerate(left, 1):
            place.note(one.key, f"{engine_id}_{number}")
        return Submitted(key, engine_id, is_new=True)

    def _known(self, there: Mapping[str, Facts] = MappingProxyType({})) -> Queue:
        """The same as `_queue`; those that were submitted together by their own keys.

        *there* is what was just read of jobs; of others it is read now.
        """
        found: dict[str, dict[tuple[str, int], Seen]] = {}
        for key, jobs in self._queue().items():
            if not (each := (there.get(key) or self._place.facts(key)).each):
                found.setdefault(key, {}).update(jobs)
            for (engine_id, member), seen in jobs.items():
                # One line is for all that never began.
                for number in [member] if member else range(1, len(each) + 1):
                    if number <= len(each) and (
                        number == member or (engine_id, number) not in jobs
                    ):
                        name = f"{engine_id}_{number}"
                        one = seen if seen.engine_id == name else replace(seen, engine_id=name)
                        found.setdefault(each[number - 1], {})[name, 0] = one
        return found

    def jobs(self) -> tuple[Job, ...]:
        """See `Engine.jobs`."""
        # First those that are known: what is submitted meanwhile is in neither.
        there = self._place.known()
        noted = {key: facts.engine_id for key, facts in there.items() if facts.engine_id}
        queue = self._known(there)
        # Those that were submitted together are told of one by one.
        known = {key for key, facts in there.items() if not facts.each}
        lives = {key for key, found in queue.items() if _alive(found)}  # its folder seen or not
        for key in (lives & known) - noted.keys():  # who submitted it died before it could note it
            self._place.note(key, noted.setdefault(key, _alive(queue[key])[0]))
        keys = sorted((noted.keys() & known) | lives)
        found: list[Job] = []
        for key in keys:
            jobs, facts = queue.get(key, {}), there.get(key)
            if facts is None or not _all_wait(jobs):  # what it left meanwhile counts
                facts = self._place.facts(key)
            found += self._told(key, facts, jobs, noted.get(key, ""))
        return tuple(found)

    def cancel(self, which: Collection[tuple[str, int]]) -> None:
        """See `Engine.cancel`: as many commands, however many they are."""
        gently: dict[Login | None, list[tuple[str, int]]] = {}
        killed: dict[Login | None, list[tuple[str, int]]] = {}
        for key, member in which:
            since_s = self._place.cancel(key, member, self._clock.now())
            outlived = since_s > self._place.grace_s(key) + _OUTLIVES_S
            names = self._place.names(key)  # without one its wrapper finds the mark
            theirs = (killed if outlived else gently).setdefault(self._place.login(key), [])
            theirs += ((engine_id, member) for engine_id in names)
        for act, of in ((self._ask_to_stop, gently), (self._kill, killed)):
            for login, jobs in of.items():
                if jobs:
                    act(jobs, login)

    def forget(self, key: str) -> None:
        """See `Engine.forget`."""
        self._place.forget(key)
        for where in [each for each in self._no_trace_since if each[0] == key]:
            del self._no_trace_since[where]

    def log(self, key: str, member: int = 0) -> Path:
        """See `Engine.log`."""
        return self._place.folder(key, member) / "log"

    def outputs(self, key: str, member: int = 0) -> Path:
        """See `Engine.outputs`."""
        return self._place.folder(key, member) / "outputs"

    def used(self, key: str, member: int = 0) -> Used | None:
        """See `Engine.used`."""
        return self._place.used(key, member)

    def _told(
        self, key: str, facts: Facts, queue: Mapping[tuple[str, int], Seen], engine_id: str
    ) -> Iterator[Job]:
        """That job, or all members of it."""
        place, touched = self._place, facts.touched
        all_marked = 0 in touched and place.is_cancelled(key)
        # Of a key that was taken twice the one that runs counts: its wrapper has noted its id.
        names = (engine_id, *_alive(queue)[:1])
        theirs = sorted({member for _, member in queue})
        is_here = facts.was_tried  # else its folder is not seen, or another's
        for member in facts.members if is_here else theirs:
            has_files = member in touched
            record = place.record(key, member) if has_files else None
            kept = place.seen(key, member) if has_files else None
            found = [queue[name, member] for name in names if (name, member) in queue]
            if not found and member and record is None:  # one line is for all that never began
                found = [queue[name, 0] for name in names if (name, 0) in queue]
            seen = found[0] if found else None
            marked = all_marked or (has_files and place.is_cancelled(key, member))
            job = judged(key, member, seen, record, grace_s=facts.grace_s, marked=marked, kept=kept)
            now = None if seen is None else seen.given
            differs = changed(facts.given, now) if facts.given and now else ()
            if marked or differs:  # which of thousands that wait few are
                job = replace(job, is_cancelled=marked, changed=differs)
            job = self._for_its_memory(job, record)
            if seen is not None and seen.kind is ExitKind.OK and record is None:
                job = self._without_trace(job)
            if is_here and seen is not None and job.end is not None and kept is None:
                place.see(key, member, job.state, job.end)
            elif kept is not None and job.phase is not Phase.ENDED:
                place.unsee(key, member)
            yield job

    def _for_its_memory(self, job: Job, record: Record | None) -> Job:
        """*job*, which its machine may have ended with its wrapper: its state says not why."""
        ended_itself = record is not None and record.end is not None
        if self._for_memory is None or job.phase is not Phase.ENDED or ended_itself:
            return job
        if job.end is not None and job.end.kind not in {ExitKind.FAILED, ExitKind.INFRASTRUCTURE}:
            return job  # which says more than its log
        if job.is_cancelled or not self._for_memory.search(self._place.said(job.key, job.member)):
            return job
        return replace(job, end=Exit(ExitKind.OUT_OF_MEMORY, None, OVER_MEMORY), reason=None)

    def _without_trace(self, job: Job) -> Job:
        """One that ended well by the engine's word, and whose record is not here, or not yet."""
        now_s, where = self._clock.monotonic_s(), (job.key, job.member)
        if now_s - self._no_trace_since.setdefault(where, now_s) < _SEEN_WITHIN_S:
            return replace(job, phase=Phase.ENDING, end=None)
        return replace(job, end=None, reason=NO_TRACE, nodes="")

    def _follows(self, request: Request) -> dict[str, str]:
        """The ids of the jobs that it waits for; of those that ended as they had to, none."""
        found = {}
        for part in request.parts:
            if not isinstance(part, After):
                continue
            ends = [self._place.seen(part.key, each) for each in self._place.members(part.key)]
            known = [each[1].kind for each in ends if each is not None]
            engine_id = self._place.noted(part.key)
            if engine_id and len(known) < len(ends):
                found[part.key] = engine_id
            elif not engine_id or not as_wished(part.when, known):
                said = f"it follows job {part.key}, which "
                said += f"ended otherwise ({', '.join(known)})" if known else "is not known"
                raise EngineRefused(self.name, request.key, said)
        return found


def _alive(found: Mapping[tuple[str, int], Seen]) -> list[str]:
    """The engine's ids of those that have not ended."""
    return sorted(name for (name, _), seen in found.items() if seen.phase is not Phase.ENDED)


def _all_wait(found: Mapping[tuple[str, int], Seen]) -> bool:
    phases = {seen.phase for seen in found.values()}
    return bool(phases) and phases <= {Phase.WAITING, Phase.HELD}


def as_wished(when: When, ends: Sequence[ExitKind]) -> bool:
    """Whether a job and its members ended so that another one that waits for *when* starts."""
    well = all(kind is ExitKind.OK for kind in ends)
    return when is When.ANY or well == (when is When.OK)
