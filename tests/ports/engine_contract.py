"""What every engine must do. Subclass `EngineContract` and give it a `harness` fixture.

What not all of them have is in classes beside it: `QueueContract` where jobs may wait,
`KeyedContract` where a job is found by its key before it has begun, `BesideContract` where others
cancel jobs, and engines forget them, `OperatedContract` where operators do more. A part of a
request that an engine does not take it must refuse, which each test of one sees.
"""

from dataclasses import replace

import pytest

from headway.engine.errors import EngineRefused
from headway.engine.port import After, Array, Gang, Phase, Requeue
from headway.errors import InvalidInput
from headway.model.run import ExitKind, When
from tests.ports.engine_harness import IGNORES, OBEYS, SLEEPS, EngineHarness


class EngineContract:
    """The port's promises, one test each."""

    def test_a_job_runs_and_its_end_is_known(self, harness: EngineHarness) -> None:
        command = 'echo one; echo two >&2; echo "$GIVEN" > "$HEADWAY_OUTPUTS/kept"; exit 3'
        key = harness.submitted(command, env={"GIVEN": "a 'value' of its own"}).key
        end = harness.end(key)
        assert (end.kind, end.code) == (ExitKind.FAILED, 3)
        assert harness.log(key) == "one\ntwo\n"
        engine = harness.engine()
        assert (engine.outputs(key) / "kept").read_text() == "a 'value' of its own\n"
        used = engine.used(key)
        assert used is not None
        assert used.host_peak_bytes
        assert used.cpu_s is not None

    def test_what_cannot_be_started_says_so(self, harness: EngineHarness) -> None:
        request = replace(harness.request(""), command=("/no/such/program",))
        key = harness.engine().submit(request).key
        end = harness.end(key)
        assert (end.kind, end.code) == (ExitKind.FAILED, 127)
        assert "/no/such/program" in harness.log(key)

    def test_of_eight_tries_at_once_one_is_handed_in(self, harness: EngineHarness) -> None:
        request = harness.request('echo once >> "$HEADWAY_OUTPUTS/../count"')
        found = harness.at_once(8, lambda engine: engine.submit(request))
        assert sorted(each.is_new for each in found) == [False] * 7 + [True]
        assert len({each.engine_id for each in found}) == 1
        harness.ended(request.key)
        assert (harness.engine().outputs(request.key).parent / "count").read_text() == "once\n"

    @pytest.mark.parametrize("when", ["runs", "ended"])
    def test_who_was_killed_before_the_note_finds_the_job(
        self, harness: EngineHarness, when: str
    ) -> None:
        request = harness.request("echo once" if when != "runs" else SLEEPS)
        first = harness.engine().submit(request)
        if when == "runs":
            harness.up(request.key)
        else:
            harness.ended(request.key)
        (harness.folder / request.key / "job").unlink()
        again = harness.engine().submit(request)
        assert (again.engine_id, again.is_new) == (first.engine_id, False)

    def test_one_whose_time_is_over_is_ended(self, harness: EngineHarness) -> None:
        """Engines that count in minutes do so in their own time, which no test waits for."""
        if harness.limit_s is None:
            return
        key = harness.submitted(OBEYS, time_limit_s=harness.limit_s).key
        assert harness.end(key).kind is ExitKind.TIMED_OUT
        assert harness.log(key) == "up\nbye\n"

    def test_who_is_cancelled_has_its_grace(self, harness: EngineHarness) -> None:
        key = harness.submitted(OBEYS).key
        harness.up(key)
        harness.engine().cancel([(key, 0)])
        end = harness.end(key)
        assert (end.kind, end.code) == (ExitKind.CANCELLED, 7)
        assert harness.log(key) == "up\nbye\n"
        assert "by its user" in end.message
        harness.engine().cancel([(key, 0)])

    def test_who_does_not_obey_is_killed(self, harness: EngineHarness) -> None:
        key = harness.submitted(IGNORES, grace_s=1.0).key
        harness.up(key)
        harness.engine().cancel([(key, 0)])
        end = harness.end(key)
        assert (end.kind, end.code) == (ExitKind.CANCELLED, 137)

    def test_members_of_an_array_know_their_number(self, harness: EngineHarness) -> None:
        if harness.refuses(Array(2)):
            return
        command = "echo $HEADWAY_ARRAY_INDEX; exit $((HEADWAY_ARRAY_INDEX - 1))"
        key = harness.submitted(command, parts=(Array(3, at_most=2),)).key
        codes = {}
        for member in (1, 2, 3):
            codes[harness.log(key, member)] = harness.end(key, member).code
        assert codes == {"1\n": 0, "2\n": 1, "3\n": 2}

    def test_no_more_members_run_at_once_than_may(self, harness: EngineHarness) -> None:
        if harness.refuses(Array(2)):
            return
        key = harness.submitted(SLEEPS, parts=(Array(4, at_most=1),)).key
        harness.until(key, Phase.RUNNING, member=1)
        phases = [each.phase for each in harness.engine().jobs() if each.key == key]
        assert sorted(phases) == [Phase.RUNNING] + [Phase.WAITING] * 3
        harness.engine().cancel([(key, 0)])
        for member in (1, 2, 3, 4):
            assert harness.end(key, member).kind is ExitKind.CANCELLED

    def test_one_of_an_array_is_cancelled(self, harness: EngineHarness) -> None:
        if harness.refuses(Array(2)):
            return
        key = harness.submitted(OBEYS, parts=(Array(2),)).key
        harness.until(key, Phase.RUNNING, member=1)
        harness.until(key, Phase.RUNNING, member=2)
        harness.engine().cancel([(key, 2)])
        end = harness.end(key, 2)
        assert end.kind is ExitKind.CANCELLED
        assert harness.until(key, Phase.RUNNING, member=1).end is None

    def test_jobs_handed_in_together_are_each_ones_own(self, harness: EngineHarness) -> None:
        if harness.refuses(Array(2)):
            return
        says = 'echo "$WHO" in "$PWD"; test "$WHO" != two || exec sleep 300'
        each = tuple(
            harness.request(says, env={"WHO": who}, working_dir=str(harness.folder))
            for who in ("one", "two", "three")
        )
        array = harness.request("", parts=(Array(3, at_most=3, each=each),))
        first = harness.engine().submit(array)
        assert first.is_new
        keys = [one.key for one in each]
        harness.until(keys[1], Phase.RUNNING)
        assert not harness.engine().submit(array).is_new
        assert not harness.engine().submit(each[0]).is_new
        for key, who in ((keys[0], "one"), (keys[2], "three")):
            end = harness.ended(key).end
            assert end is not None
            assert end.kind is ExitKind.OK
            assert harness.log(key) == f"{who} in {harness.folder}\n"
        harness.engine().cancel([(keys[1], 0)])
        end = harness.ended(keys[1]).end
        assert end is not None
        assert end.kind is ExitKind.CANCELLED
        assert array.key not in {job.key for job in harness.engine().jobs()}
        for key in keys:
            harness.engine().forget(key)
        left = {job.key for job in harness.engine().jobs()}
        assert not left & {*keys, array.key}
        assert not (harness.folder / array.key).exists()

    @pytest.mark.parametrize(
        ("code", "when", "starts"),
        [(0, When.OK, True), (1, When.OK, False), (1, When.FAILED, True), (1, When.ANY, True)],
    )
    def test_who_follows_starts_when_it_may(
        self, harness: EngineHarness, code: int, when: When, *, starts: bool
    ) -> None:
        if harness.refuses(After("another")):
            return
        first = harness.submitted(f"sleep 1; exit {code}").key
        key = harness.submitted("echo once", parts=(After(first, when),)).key
        assert harness.end(key).kind is (ExitKind.OK if starts else ExitKind.CANCELLED)
        assert (harness.log(key) == "once\n") == starts

    def test_the_parts_of_a_gang_meet(self, harness: EngineHarness) -> None:
        if harness.refuses(Gang(2)):
            return
        env = {"RANK": "{rank}", "WORLD_SIZE": "{world_size}", "MASTER_PORT": "{master_port}"}
        command = "echo $RANK of $WORLD_SIZE; test $MASTER_PORT -gt 0"
        key = harness.submitted(command, parts=(Gang(2, env=env),)).key
        assert harness.end(key).kind is ExitKind.OK
        path = harness.engine().log(key)
        logs = [path.read_text(), path.with_name("log.1").read_text()]
        assert logs == ["0 of 2\n", "1 of 2\n"]
        used = harness.engine().used(key)
        assert used is not None
        assert used.host_peak_bytes

    def test_sites_do_not_see_each_other(self, harness: EngineHarness) -> None:
        key = harness.submitted(SLEEPS).key
        assert harness.job(key) is not None
        others = {job.key for job in harness.make("other").jobs()}
        assert key not in others

    def test_what_it_has_is_told(self, harness: EngineHarness) -> None:
        cluster = harness.engine().inspect()
        (pool,) = (each for each in cluster.pools if each.name == harness.pool)
        assert len(pool.nodes) == 2
        assert all(node.cpus > 0 and node.host_memory_bytes > 0 for node in pool.nodes)
        assert cluster.max_array > 0
        assert pool.is_up

    def test_what_is_no_key_is_refused(self, harness: EngineHarness) -> None:
        for key in ("", "a/b", "..", "a b", "x" * 65):
            with pytest.raises(InvalidInput, match="key"):
                harness.submitted("true", key=key)


class QueueContract:
    """Where jobs wait until there is room."""

    def test_what_an_engine_took_twice_runs_once(self, harness: EngineHarness) -> None:
        """A try that was given up may still be on its way to the engine when it is repeated."""
        full = harness.full()
        request = harness.request('echo once >> "$HEADWAY_OUTPUTS/../count"')
        first = harness.engine().submit(request)
        folder = harness.folder / request.key
        for name in ("job", "request.json"):  # as if the engine had not had it when it was asked
            (folder / name).unlink(missing_ok=True)
        second = harness.engine().submit(request)
        harness.engine().cancel([(key, 0) for key in full])
        job = harness.ended(request.key)
        assert job.engine_id in {first.engine_id, second.engine_id}
        assert job.end is not None
        assert job.end.kind is ExitKind.OK
        for key in full:
            harness.ended(key)
        assert (folder / "count").read_text() == "once\n"

    def test_who_waits_is_told_why(self, harness: EngineHarness) -> None:
        harness.full()
        key = harness.submitted(SLEEPS).key
        job = harness.until(key, Phase.WAITING)
        assert job.end is None
        assert job.state
        assert job.reason is None or job.reason.sentence

    def test_who_waits_is_cancelled_and_never_begins(self, harness: EngineHarness) -> None:
        harness.full()
        key = harness.submitted(SLEEPS).key
        harness.until(key, Phase.WAITING)
        harness.engine().cancel([(key, 0)])
        end = harness.end(key)
        assert (end.kind, end.message) == (ExitKind.CANCELLED, "cancelled by its user")
        assert harness.log(key) == ""


class KeyedContract:
    """Where the engine tells of each job by its key."""

    def test_who_was_killed_before_the_note_finds_the_one_that_waits(
        self, harness: EngineHarness
    ) -> None:
        harness.full()
        request = harness.request(SLEEPS)
        first = harness.engine().submit(request)
        harness.until(request.key, Phase.WAITING)
        (harness.folder / request.key / "job").unlink()
        again = harness.engine().submit(request)
        assert (again.engine_id, again.is_new) == (first.engine_id, False)


class BesideContract:
    """Where somebody cancels a job beside headway, and engines forget."""

    def test_who_was_killed_before_the_note_finds_one_that_is_forgotten(
        self, harness: EngineHarness
    ) -> None:
        request = harness.request("echo once")
        first = harness.engine().submit(request)
        harness.ended(request.key)
        harness.somebody.forget_ended()
        (harness.folder / request.key / "job").unlink()
        again = harness.engine().submit(request)
        assert (again.engine_id, again.is_new) == (first.engine_id, False)

    def test_what_somebody_cancels_is_told_so(self, harness: EngineHarness) -> None:
        job = harness.submitted(SLEEPS)
        harness.up(job.key)
        harness.somebody.cancel(job.engine_id)
        end = harness.end(job.key)
        assert end.kind is ExitKind.CANCELLED
        assert "somebody" in end.message

    def test_what_the_engine_forgot_has_ended_as_it_did(self, harness: EngineHarness) -> None:
        """They end while nobody looks."""
        ends = {harness.submitted("exit 3").key: 3, harness.submitted("exit 0").key: 0}
        for key in ends:
            harness.written(key)
        harness.somebody.forget_ended()
        for key, code in ends.items():
            job = harness.job(key)
            assert job is not None
            assert job.phase is Phase.ENDED
            assert job.end is not None
            assert job.end.code == code
            harness.engine().forget(key)
            assert harness.job(key) is None

    def test_who_follows_one_that_was_forgotten(self, harness: EngineHarness) -> None:
        if harness.refuses(After("another")):
            return
        first = harness.submitted("exit 1").key
        harness.ended(first)
        harness.somebody.forget_ended()
        key = harness.submitted("echo once", parts=(After(first, When.FAILED),)).key
        assert harness.end(key).kind is ExitKind.OK
        for other in (first, "no-such-job"):
            with pytest.raises(EngineRefused, match=other):
                harness.submitted("echo once", parts=(After(other, When.OK),))


class OperatedContract:
    """Where jobs are held, released and queued again, and the engine is restarted."""

    def test_what_somebody_holds_is_told_so_and_goes_on(self, harness: EngineHarness) -> None:
        full = harness.full()
        job = harness.submitted("echo once")
        harness.until(job.key, Phase.WAITING)
        harness.somebody.hold(job.engine_id)
        assert harness.until(job.key, harness.held).end is None
        harness.somebody.release(job.engine_id)
        harness.engine().cancel([(key, 0) for key in full])
        assert harness.end(job.key).kind is ExitKind.OK

    def test_what_somebody_queues_again_goes_on(self, harness: EngineHarness) -> None:
        """It has ended once by its record, and has not by the engine's word."""
        command = "trap 'exit 7' TERM; echo up; [ $HEADWAY_RESTART != 0 ] && exit 0; "
        parts = (Requeue(),) if Requeue in harness.engine().takes else ()
        job = harness.submitted(command + "while :; do sleep 0.05; done", parts=parts)
        harness.up(job.key)
        harness.somebody.requeue(job.engine_id)
        told = harness.until(job.key, Phase.WAITING, Phase.RUNNING, Phase.ENDED)
        assert told.end is None or told.end.kind is ExitKind.OK
        assert harness.end(job.key).kind is ExitKind.OK
        assert harness.log(job.key).count("up\n") == 2

    def test_a_restart_of_the_engine_loses_nothing(self, harness: EngineHarness) -> None:
        runs = harness.submitted(OBEYS)
        harness.up(runs.key)
        waits = harness.request("echo once")
        harness.engine().submit(waits)
        harness.somebody.restart()
        # What was submitted a moment before may be lost, and is then submitted anew.
        harness.engine().submit(waits)
        assert harness.end(waits.key).kind is ExitKind.OK
        assert harness.log(waits.key) == "once\n"
        assert harness.until(runs.key, Phase.RUNNING).engine_id == runs.engine_id
