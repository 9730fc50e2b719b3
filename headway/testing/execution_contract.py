"""What every runtime that starts commands beside programs must do, as `RuntimeContract`."""

import pytest

from headway.errors import ContainerMissing, RuntimeFailure
from headway.model.exec_messages import ExecCommand, StandardStream
from headway.runtime.port import Execution
from headway.testing.execution import CommandScript
from headway.testing.runtime_harness import SLEEPS, SUCCEEDS, Harness, until

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
