"""What every runtime must do. Subclass `RuntimeContract` and give it a `harness` fixture."""

import socket
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headway.model.container_policy import ContainerPolicy
from headway.model.exec_messages import ExecCommand, StandardStream
from headway.runtime.errors import (
    ContainerExists,
    ContainerMissing,
    PolicyViolation,
    RuntimeFailure,
)
from headway.runtime.port import BindMount, ContainerState, Execution, Runtime, RuntimeKind
from headway.units import MIB
from tests.ports.runtime import CommandScript
from tests.ports.runtime_harness import (
    CHILD_EATS_MEMORY,
    COUNTS,
    EATS_MEMORY,
    END_S,
    FLOODS,
    GROWS,
    IGNORES,
    MANY,
    OBEYS,
    PROMPT_S,
    SLEEPS,
    SPEAKS,
    SUCCEEDS,
    Harness,
    at_once,
    until,
    whole_log,
)

ENDS = ("sh", "-c", "echo out; echo err >&2; exit 5")
READS = ("cat",)
STAYS = ("sh", "-c", "echo up; sleep 60 & wait")
LEAVES = ("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo left")
COMMANDS = {
    ENDS: CommandScript(b"out\n", b"err\n", 5),
    READS: CommandScript(reads=True),
    STAYS: CommandScript(b"up\n", stays=True),
    LEAVES: CommandScript(b"left\n"),
}


def rest(execution: Execution) -> dict[StandardStream, bytes]:
    """All that it prints until its end."""
    found = {StandardStream.OUTPUT: b"", StandardStream.ERROR: b""}
    while (piece := execution.read()) is not None:
        found[piece.stream] += piece.data
    return found


class ExecutionContract:
    """The port's promises about commands, one test each."""

    def test_what_a_command_prints_and_how_it_ends_is_told(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        execution = runtime.execute(spec.name, ExecCommand(arguments=ENDS))
        found = rest(execution)
        assert found == {StandardStream.OUTPUT: b"out\n", StandardStream.ERROR: b"err\n"}
        until(lambda: execution.exit_code() == 5)
        execution.close()

    def test_it_gets_its_input_and_the_end_of_it(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        execution = runtime.execute(spec.name, ExecCommand(arguments=READS))
        execution.write(b"\x00\xff" * 20_000)
        execution.end_input()
        assert rest(execution)[StandardStream.OUTPUT] == b"\x00\xff" * 20_000
        until(lambda: execution.exit_code() == 0)
        execution.close()

    def test_who_closes_it_kills_it(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        before = runtime.inspect(spec.name)
        execution = runtime.execute(spec.name, ExecCommand(arguments=STAYS))
        piece = execution.read()
        assert piece is not None
        assert piece.data == b"up\n"
        assert execution.exit_code() is None
        execution.close()
        assert execution.read() is None
        until(lambda: execution.exit_code() is not None)
        until(lambda: runtime.inspect(spec.name) == before)  # nor any of its children

    def test_what_it_left_behind_ends_with_it(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        before = runtime.inspect(spec.name)
        execution = runtime.execute(spec.name, ExecCommand(arguments=LEAVES))
        assert rest(execution)[StandardStream.OUTPUT] == b"left\n"
        until(lambda: execution.exit_code() == 0)
        execution.close()
        until(lambda: runtime.inspect(spec.name) == before)

    def test_it_ends_with_its_container(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        execution = runtime.execute(spec.name, ExecCommand(arguments=STAYS))
        runtime.stop(spec.name, 0.0)
        rest(execution)
        execution.close()
        runtime.remove(spec.name)

    def test_beside_nothing_that_runs_there_is_none(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(SUCCEEDS)
        with pytest.raises(RuntimeFailure, match="does not run"):
            runtime.execute(spec.name, ExecCommand(arguments=ENDS))
        with pytest.raises(ContainerMissing):
            runtime.execute("nobody", ExecCommand(arguments=ENDS))


class RuntimeContract:
    """The port's promises, one test each."""

    def test_a_program_runs_and_its_end_is_known(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SPEAKS)
        runtime.create(spec)
        created = runtime.inspect(spec.name)
        assert created is not None
        assert created.state is ContainerState.CREATED
        assert created.exit_code is None
        runtime.start(spec.name)
        ended = harness.runtime().wait(spec.name, END_S)
        assert (ended.state, ended.exit_code, ended.oom_killed) == (ContainerState.EXITED, 3, False)
        assert (ended.name, ended.run_id, ended.attempt) == (spec.name, spec.run_id, spec.attempt)
        assert ended.started_at is not None
        assert ended.ended_at is not None
        assert ended.started_at <= ended.ended_at
        assert whole_log(runtime, spec.name) == b"one\ntwo\n"

    def test_waiting_gives_up_in_time(self, harness: Harness) -> None:
        spec = harness.spec(SLEEPS)
        runtime = harness.started(spec)
        began_s = time.monotonic()
        assert runtime.wait(spec.name, 0.3).state is ContainerState.RUNNING
        assert 0.25 <= time.monotonic() - began_s < PROMPT_S

    def test_waiting_for_one_that_was_not_started(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SLEEPS)
        runtime.create(spec)
        began_s = time.monotonic()
        assert runtime.wait(spec.name, 0.2).state is ContainerState.CREATED
        assert time.monotonic() - began_s >= 0.2

    def test_of_sixteen_creates_one_wins(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)

        def create(runtime: Runtime) -> bool:
            try:
                runtime.create(spec)
            except ContainerExists:
                return False
            return True

        assert sorted(at_once(16, harness, create)) == [False] * 15 + [True]

    def test_a_program_is_started_once(self, harness: Harness) -> None:
        runtime, spec = harness.runtime(), harness.spec(SUCCEEDS)
        runtime.create(spec)
        at_once(6, harness, lambda another: another.start(spec.name))
        runtime.wait(spec.name, END_S)
        runtime.start(spec.name)
        assert runtime.wait(spec.name, END_S).state is ContainerState.EXITED
        assert whole_log(runtime, spec.name) == b"once\n"

    def test_a_port_that_it_was_not_given_is_not_its_own(self, harness: Harness) -> None:
        """Whoever else of the machine listens there must not be taken for its program."""
        spec = harness.spec(SLEEPS)
        with closing(socket.create_server(("127.0.0.1", 0))) as other:
            port = other.getsockname()[1]
            runtime = harness.started(spec)
            assert not runtime.serves(spec.name, port)
            runtime.remove(spec.name)
        assert not runtime.serves("nobody", port)

    def test_what_does_not_exist(self, harness: Harness) -> None:
        runtime = harness.runtime()
        assert runtime.inspect("nobody") is None
        runtime.stop("nobody", 0.0)
        runtime.remove("nobody")
        for ask in (
            runtime.start,
            lambda name: runtime.wait(name, 0.1),
            lambda name: runtime.read_log(name, 0),
        ):
            with pytest.raises(ContainerMissing):
                ask("nobody")

    def test_stop_lets_the_program_end_itself(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(OBEYS)
        began_s = time.monotonic()
        runtime.stop(spec.name, 60.0)
        assert time.monotonic() - began_s < PROMPT_S
        assert runtime.wait(spec.name, END_S).exit_code == 7
        runtime.stop(spec.name, 10.0)

    def test_stop_kills_what_does_not_obey(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(IGNORES)
        began_s = time.monotonic()
        runtime.stop(spec.name, 1.0)
        assert 0.9 < time.monotonic() - began_s < PROMPT_S
        ended = runtime.wait(spec.name, END_S)
        assert (ended.exit_code, ended.oom_killed) == (137, False)

    def test_remove_ends_everything(self, harness: Harness) -> None:
        runtime, spec = harness.sleeping(SLEEPS)
        status = runtime.inspect(spec.name)
        assert status is not None
        assert status.pids
        runtime.remove(spec.name)
        assert runtime.inspect(spec.name) is None
        assert spec.name not in {status.name for status in runtime.containers()}
        runtime.remove(spec.name)
        runtime.create(spec)  # the name is free again

    def test_a_program_beyond_its_memory_is_killed(self, harness: Harness) -> None:
        _, _, ended = harness.ended(EATS_MEMORY)
        assert (ended.exit_code, ended.oom_killed) == (137, True)

    def test_a_child_beyond_the_memory_is_noticed(self, harness: Harness) -> None:
        _, _, ended = harness.ended(CHILD_EATS_MEMORY)
        assert ended.oom_killed
        assert ended.exit_code in {0, 137}

    def test_a_limit_that_was_raised_in_time_kills_nobody(self, harness: Harness) -> None:
        spec = harness.spec(GROWS)
        runtime = harness.started(spec)
        runtime.limit_memory(spec.name, 512 * MIB)
        ended = harness.runtime().wait(spec.name, END_S)
        assert (ended.exit_code, ended.oom_killed) == (0, False)
        runtime.limit_memory(spec.name, 600 * MIB)  # it has ended: nothing to do
        with pytest.raises(ContainerMissing):
            runtime.limit_memory("nobody", 512 * MIB)

    def test_use_is_known_after_the_end(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(COUNTS)
        used = runtime.usage(spec.name)
        assert used.host_peak_bytes is not None
        assert 0 < used.host_peak_bytes <= spec.host_memory_bytes
        assert used.cpu_s is not None

    def test_what_it_writes_elsewhere_lies_in_directories(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(SUCCEEDS)
        assert all(folder.is_dir() for folder in runtime.own_folders(spec.name))
        assert runtime.own_folders("nobody") == ()

    def test_no_line_is_lost_or_doubled(self, harness: Harness) -> None:
        spec = harness.spec(COUNTS)
        runtime = harness.started(spec)
        found, offset = b"", 0
        while True:
            ended = runtime.wait(spec.name, 0.0).state is ContainerState.EXITED
            # A reader of its own each time, as after a crash.
            chunk = harness.runtime().read_log(spec.name, offset, 7_777)
            assert chunk.skipped_bytes == 0
            assert len(chunk.data) <= 7_777
            found, offset = found + chunk.data, chunk.next_offset
            if ended and not chunk.data:
                break
        assert found.decode().splitlines() == [f"line {i}" for i in range(MANY)]

    def test_a_flood_gives_up_its_oldest_part(self, harness: Harness) -> None:
        runtime, spec, _ = harness.ended(FLOODS, log_limit_bytes=MIB)
        runtime.trim_logs()
        first = runtime.read_log(spec.name, 0)
        assert first.skipped_bytes >= 2 * MIB - 4096
        assert b"\0" not in first.data
        left, offset = first.data, first.next_offset
        while (chunk := runtime.read_log(spec.name, offset)).data:
            assert chunk.skipped_bytes == 0
            left, offset = left + chunk.data, chunk.next_offset
        assert first.skipped_bytes + len(left) == 3 * MIB
        assert left.endswith(b"0123456789abcde\n")
        assert len(left) <= MIB + 4096

    def test_an_image_that_is_here_is_not_missed(self, harness: Harness) -> None:
        runtime = harness.runtime()
        assert not runtime.why_no_image(harness.image)
        there = runtime.pythons({"3.1": harness.image, "3.2": "no/such:image"})
        own = runtime.kind is RuntimeKind.PROCESS
        assert there.get("3.1") == (None if own else harness.image)
        assert ("" in there.values()) == own

    def test_the_policy_is_kept(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)
        strict = harness.make(harness.site, ContainerPolicy(images=("allowed/*",)))
        with pytest.raises(PolicyViolation, match="allowed/"):
            strict.create(spec)
        runtime = harness.runtime()
        link = harness.folder / "link"
        link.symlink_to("/usr")
        for source in (Path("/usr"), link, harness.folder / "missing"):
            outside = replace(spec, mounts=(BindMount(source, "/data"),))
            with pytest.raises(PolicyViolation, match="mount source"):
                runtime.create(outside)
        assert runtime.inspect(spec.name) is None

    def test_sites_do_not_see_each_other(self, harness: Harness) -> None:
        spec = harness.spec(SUCCEEDS)
        harness.started(spec)
        other = harness.make(f"{harness.site}x", harness.policy())
        assert other.inspect(spec.name) is None
        assert spec.name not in {status.name for status in other.containers()}
        other.remove(spec.name)
        assert harness.runtime().inspect(spec.name) is not None

    def test_containers_lists_every_state(self, harness: Harness) -> None:
        runtime = harness.runtime()
        created, running, ended = (harness.spec(p) for p in (SUCCEEDS, SLEEPS, SUCCEEDS))
        runtime.create(created)
        harness.started(running)
        harness.started(ended).wait(ended.name, END_S)
        assert {status.name: status.state for status in runtime.containers()} == {
            created.name: ContainerState.CREATED,
            running.name: ContainerState.RUNNING,
            ended.name: ContainerState.EXITED,
        }


def _is_up(runtime: Runtime, name: str) -> bool:
    return whole_log(runtime, name) == b"up\n"
