"""The story of a run tells every attempt in order, in words, and users' text as text."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.model.attempt_record import AttemptRecord
from headway.model.lease import Basis, Demand, GpuGrant, Lease
from headway.model.node import Gpu
from headway.model.progress import MetricSpan
from headway.model.run import Exit, ExitKind, Measurement, Prediction, RunState, Step, StepState
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.units import GIB, MIB
from headway.views.run_history import RunHistory
from headway.views.run_markdown import markdown
from headway.views.run_report import Section, ending, headline, run_report
from tests.unit.views.test_documents import NOON
from tests.unit.views.test_documents import RECORD as WAITING

DONE = Exit(ExitKind.OK, 0, "done")
KILLED = Exit(ExitKind.OUT_OF_MEMORY, 137, "killed at its host memory limit (exit 137)")
DEMAND = Demand(GIB, 2.0, gpus=1, gpu_memory_bytes=3 * GIB, host_memory_basis=Basis.PREDICTED)
SAID = Prediction(90.0, 70.0, 120.0, GIB, basis="7 earlier runs")


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def lease(attempt: int, at_s: float, memory: int = GIB) -> Lease:
    grants = (GpuGrant("GPU-a", 3 * GIB),)
    return Lease(
        10 + attempt, "r1", attempt, "node-a", "secret-token", memory, 2.0, grants, {},
        after(at_s), after(at_s + 60),
    )  # fmt: skip


FIRST = AttemptRecord(
    "r1", 1, "node-a", "gpu_memory", "needs 3.0 GiB on one GPU", after(62), after(63), after(70),
    KILLED, SAID, DEMAND, Measurement(7.0, GIB),
)  # fmt: skip
SECOND = AttemptRecord(
    "r1", 2, "node-a", None, "", after(71), after(72), after(172), DONE, SAID, DEMAND,
    Measurement(100.0, 512 * MIB, gpu_peak_bytes=2 * GIB, cpu_s=150.0),
)  # fmt: skip
FAILURE = SilentFailure(Silent.GPU_UNUSED, "r1", "GPU-a", 0.0, 0.02, "holds GPU-a, 0.0% busy")
JOB = {"image": "python:3.11", "command": ["python", "train.py"], "dataset": {"uri": "s3://b/d"}}
RECORD = replace(
    WAITING, run_id="r1", owner="ada", team="vision", job=JOB, state=RunState.ENDED, resource=None,
    reason="", node="node-a", runtime="docker", container="c", claimed_at=after(71),
    started_at=after(72), ended_at=after(172), exit=DONE, prediction=SAID, demand=DEMAND,
    measurement=SECOND.measurement,
)  # fmt: skip
PAST = RunHistory(
    RECORD,
    attempts=[FIRST, SECOND],
    leases=[lease(1, 62), lease(2, 71, 2 * GIB)],
    warnings=[RunWarning(2, FAILURE, after(100), after(172))],
    steps=[Step("train", 2, StepState.DONE, after(72), after(172))],
    ranks=[],
    folder=Path("/home/runs/r1"),
    here="node-a",
    outputs=["/home/runs/r1/outputs/model.bin"],
)


def facts(past: RunHistory, title: str) -> dict[str, str]:
    (section,) = [each for each in run_report(past) if each.title == title]
    return {row[0]: row[1] for row in section.rows}


def test_a_peak_is_held_against_the_lease_that_it_ran_under() -> None:
    given_back = replace(lease(2, 70, GIB), lease_id=2)
    part = replace(lease(2, 71, 4 * GIB), lease_id=99, gang_rank=1)
    past = replace(PAST, leases=[*PAST.leases, given_back, part])
    assert facts(past, "Attempt 2")["peaks"] == facts(PAST, "Attempt 2")["peaks"]


def test_who_slowed_it_down_on_its_gpu_is_told_without_other_teams_runs() -> None:
    *others, last = PAST.attempts
    measured = replace(last.measurement or Measurement(), slowed={"r7": 1.42, "": 2.0})
    found = facts(
        replace(PAST, attempts=[*others, replace(last, measurement=measured)]), "Attempt 2"
    )
    # Of several lines the last is what `facts` has.
    assert found["shared"] == "a step took 2.0 times as long beside a run of another team as alone"
    alone = replace(measured, slowed={"r7": 1.42})
    found = facts(replace(PAST, attempts=[*others, replace(last, measurement=alone)]), "Attempt 2")
    assert found["shared"] == "a step took 1.4 times as long beside r7 as alone"
    assert "shared" not in facts(PAST, "Attempt 2")


def test_a_run_that_was_never_granted_leaves_nothing_behind() -> None:
    waits = replace(PAST, attempts=[], leases=[], steps=[], warnings=[])
    assert [section.title for section in run_report(waits)][:1] == ["Asked for"]
    assert "Left behind" not in [section.title for section in run_report(waits)]


def test_what_was_asked_is_first() -> None:
    asked = facts(PAST, "Asked for")
    assert asked["program"] == "python train.py"
    assert asked["data set"] == "s3://b/d"
    assert asked["needs"] == (
        "1.0 GiB of host memory (predicted), 2 CPUs, 1 GPU(s), 3.0 GiB each (declared)"
    )
    assert (
        asked["expected run time"]
        == "1 min 30 s (1 min 10 s to 2 min), by 7 earlier runs, said before it began"
    )


def test_each_attempt_says_why_it_waited_what_it_held_and_how_it_ended() -> None:
    first, second = facts(PAST, "Attempt 1"), facts(PAST, "Attempt 2")
    assert first["waited"] == "1 min 2 s for gpu memory: it needs 3.0 GiB on one GPU"
    assert first["granted"].startswith("lease 11 on node-a, 2026-01-01 12:01:02 UTC: 1.0 GiB of")
    assert first["granted"].endswith("2 CPUs, 3.0 GiB of GPU-a (shared)")
    assert first["ended"] == "it was killed for host memory, with exit 137, signal SIGKILL"
    assert first["log"] == "/home/runs/r1/log/attempt-1.log"
    assert second["waited"] == "1.0 s; it fitted at once"  # counted from the first one's end
    assert second["peaks"] == (
        "host memory 512 MiB of 2.0 GiB (25%), GPU memory 2.0 GiB of 3.0 GiB, 1.5 CPUs on average"
    )
    assert second["warning"].startswith("gpu unused: it holds GPU-a, 0.0% busy (from 2026-01-01 12")
    assert second["time of each step"] == "train 1 min 40 s"
    assert "warning" not in first
    assert second["ran"].startswith("1 min 40 s, the whole attempt: from 2026-01-01")


def test_prediction_stands_beside_measurement_for_each_attempt() -> None:
    titles = [section.title for section in run_report(PAST)]
    assert titles == [
        "Asked for", "Attempt 1", "Attempt 1: predicted and measured", "Attempt 2",
        "Attempt 2: predicted and measured", "Left behind",
    ]  # fmt: skip
    table = run_report(PAST)[4]
    assert table.columns == ("", "predicted", "measured", "measured ÷ predicted")
    assert table.rows[0] == (
        "run time of the program",
        "1 min 30 s (1 min 10 s to 2 min)",
        "1 min 40 s",
        "1.11",
    )


def test_a_cancelled_run_says_no_failure_and_nothing_to_fetch() -> None:
    gone = Exit(ExitKind.CANCELLED, None, "cancelled by its owner")
    *others, last = PAST.attempts
    step = Step("train", 2, StepState.FAILED, after(72), after(172), "it was stopped")
    past = replace(PAST, attempts=[*others, replace(last, exit=gone)], steps=[step], outputs=[])
    assert facts(past, "Attempt 2")["time of each step"] == "train 1 min 40 s (cancelled)"
    assert facts(past, "Left behind")["outputs"] == "none"
    failed = facts(replace(PAST, steps=[step]), "Attempt 2")["time of each step"]
    assert failed == "train 1 min 40 s (failed)"


def test_what_its_metrics_were_is_a_table() -> None:
    spans = {"loss": MetricSpan(0.5, 0.25, 2.0), "acc": MetricSpan(math.nan, math.inf, -math.inf)}
    (section,) = [s for s in run_report(replace(PAST, metrics=spans)) if s.title == "Metrics"]
    assert section.columns == ("", "last", "lowest", "highest")
    assert section.rows == (("loss", "0.5", "0.25", "2"), ("acc", "nan", "–", "–"))


def test_a_gangs_other_ranks_are_named() -> None:
    other = replace(RECORD, run_id="r2", node="node-b", gang_id="r1", gang_rank=1, exit=KILLED)
    told = facts(replace(PAST, ranks=[other]), "Other nodes")["rank 1"]
    assert told.startswith("run r2 on node-b: it was killed for host memory, with exit 137")


def test_the_headline_is_one_sentence() -> None:
    assert headline(PAST) == "flights ended well in attempt 2 on node-a: done."
    goes_on = replace(PAST, record=replace(RECORD, state=RunState.RUNNING, exit=None))
    assert headline(goes_on) == "flights has not ended yet (running)."


def test_a_run_that_was_cancelled_in_the_line_has_a_story() -> None:
    gone = Exit(ExitKind.CANCELLED, None, "cancelled by its owner")
    only = AttemptRecord("r1", 1, None, "cpus", "needs 9 CPUs", ended_at=after(30), exit=gone)
    record = replace(RECORD, exit=gone, node=None, attempt=1, demand=None, prediction=None)
    past = replace(PAST, record=record, attempts=[only], leases=[], warnings=[], steps=[])
    told = facts(past, "Attempt 1")
    assert told["waited"] == "30 s for cpus: it needs 9 CPUs"
    assert told["ended"] == "it was cancelled"
    assert "log" not in told
    assert f"(/headway#/runs/{past.record.run_id})" in markdown(past)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "ended well, with exit 0"),
        (143, "ended well, with exit 143, signal SIGTERM"),
        (255, "ended well, with exit 255"),
    ],
)
def test_an_exit_code_is_put_into_words(code: int, said: str) -> None:
    assert ending(Exit(ExitKind.OK, code, "")) == said


def test_no_token_and_no_users_markup_reaches_the_page() -> None:
    hostile: Mapping[str, Any] = {"image": "<img src=x>", "command": ["a|b", "[x](y)", "\n# z"]}
    text = markdown(replace(PAST, record=replace(RECORD, name="<b>*x*", job=hostile)))
    assert "secret-token" not in text
    for raw in ("<b>", "<img", "[x]", "*x*", "a|b"):
        assert raw not in text.replace("\\" + raw, "")
    rows = [line for line in text.splitlines() if line.startswith("- **program**")]
    assert rows == ["- **program** a\\|b \\[x\\](y) \\\\n\\# z"]


def test_every_table_has_rows_of_its_width() -> None:
    assert all(
        len(row) == len(section.columns) for section in run_report(PAST) for row in section.rows
    )
    assert isinstance(run_report(PAST)[0], Section)


def test_what_lies_on_another_node_is_not_said_to_be_missing() -> None:
    """`show` on the head node said "0 files" of a run of another node."""
    told = markdown(replace(PAST, here="head", outputs=None))
    assert "0 files" not in told
    assert "on node node-a; fetch them by: headway outputs" in told
    assert "on node node-a: runs/r1/log/attempt-2.log below its" in told


def test_the_port_of_a_job_is_told() -> None:
    with_port = [replace(lease(1, 62), ports={6006: 29_500}), lease(2, 71, 2 * GIB)]
    assert "port 6006 at 127.0.0.1:29500 of the node" in markdown(replace(PAST, leases=with_port))


def test_how_close_the_gpus_of_an_attempt_are_is_told_where_all_are_known() -> None:
    grants = tuple(GpuGrant(uuid, GIB) for uuid in ("GPU-a", "GPU-b"))
    there = [Gpu("GPU-a", 0, "H100", GIB, distances={"GPU-b": 50}), Gpu("GPU-b", 1, "H100", GIB)]
    past = replace(PAST, leases=[replace(lease(2, 71), gpus=grants)], gpus=there)
    text = "GPU-b (shared), these joined by NVLink, across NUMA nodes"
    assert text in facts(past, "Attempt 2")["granted"]
    elsewhere = replace(past, gpus=there[:1])
    assert "joined" not in facts(elsewhere, "Attempt 2")["granted"]
