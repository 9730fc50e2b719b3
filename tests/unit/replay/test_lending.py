"""What idle host memory carries in a replay, and who has to leave it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.errors import InvalidInput
from headway.policy.lending import LEND_AFTER_S
from headway.replay.cluster import Shape
from tests.unit.replay.traces import job, run, starts

NODE = Shape(1, 4, 24, host_memory_bytes=100)
OWNER = job("owner", 0, 10_000, host_memory_bytes=60, host_peak_bytes=20)
BORROWER = job("borrower", 5, 3_000, host_memory_bytes=60, host_peak_bytes=50, preemptible=True)


def test_what_is_idle_is_lent_once_it_is_known() -> None:
    assert starts(run([OWNER, BORROWER], shape=NODE))["borrower"] == LEND_AFTER_S
    for rows, knobs in (
        ([OWNER, BORROWER], {"lend_host_memory": False}),
        ([OWNER, job("b", 5, 3_000, host_memory_bytes=60)], {}),
        ([job("o", 0, 10_000, host_memory_bytes=60), BORROWER], {}),  # it may use all of it
    ):
        found = run(rows, shape=NODE, **knobs)
        assert found.jobs[1].start_s == 10_000


def test_who_was_promised_memory_gets_it_and_the_borrower_begins_anew() -> None:
    late = job("late", 700, 1_000, host_memory_bytes=40, host_peak_bytes=40)
    found = run([OWNER, BORROWER, late], sharing="whole", shape=NODE)
    assert starts(found) == {"owner": 0, "borrower": 1_700, "late": 700}
    borrower = found.jobs[1]
    assert (borrower.stops, borrower.end_s) == (1, pytest.approx(4_700))
    assert found.busy_gpu_s == pytest.approx(10_000 + 100 + 1_000 + 3_000)


def test_a_job_that_no_node_could_hold_is_named() -> None:
    with pytest.raises(InvalidInput, match="more --host-memory"):
        run([job("big", 0, 1, host_memory_bytes=101)], shape=NODE)


def test_the_command_shows_it_with_and_without(tmp_path: Path) -> None:
    columns = "submit_s,duration_s,gpus,gpu_memory_bytes,gpu_util_frac"
    trace = tmp_path / "trace.csv"
    trace.write_text(
        f"{columns},host_memory_bytes,host_peak_bytes,preemptible\n"
        "0,10000,1,1,0.4,64424509440,10000000000,0\n"
        "5,3000,1,1,0.4,64424509440,50000000000,1\n"
    )
    asked = ["replay", str(trace), "--nodes", "1", "--gpus", "4", "--host-memory", "100GiB"]
    said = CliRunner().invoke(headway, [*asked, "--json"])
    assert said.exit_code == 0, said.output
    without, with_ = json.loads(said.stdout)
    assert (without["lends"], without["lent"], without["max_wait_s"]) == (False, 0, 9_995)
    assert (with_["lends"], with_["lent"], with_["max_wait_s"]) == (True, 1, LEND_AFTER_S - 5)
    assert with_["stops"] == 0
    table = CliRunner().invoke(headway, asked)
    assert "stopped" in table.stdout
    plain = CliRunner().invoke(headway, asked[:-2])
    assert "stopped" not in plain.stdout
