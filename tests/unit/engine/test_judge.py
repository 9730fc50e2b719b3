"""What is true of a job by queue, record and what was kept; the words of Slurm; the pace."""

import ast
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.engine import wrapper
from headway.engine.judge import FORGOTTEN, NEVER_BEGAN, Given, Seen, changed, judged
from headway.engine.pace import pause_s
from headway.engine.port import Phase
from headway.engine.record import Record
from headway.engine.slurm_inspect import cluster, gpus, seconds
from headway.engine.slurm_states import STATES, read_reason, read_state
from headway.model.engine import GpuKind
from headway.model.run import Exit, ExitKind
from headway.units import MIB

AT = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN_S = AT.timestamp()


def seen(state: str, code: str = "None", **changes: object) -> Seen:
    phase, kind, sentence = read_state(state, code)
    return Seen("7", state, phase, kind, sentence, read_reason(code), **changes)


def record(**changes: object) -> Record:
    found = {"started_at": BEGAN_S, "ended_at": BEGAN_S + 100, "exit_code": 0} | changes
    return Record("7", "n1", **found)


@pytest.mark.parametrize(
    ("queue", "wrote", "phase", "kind"),
    [
        (seen("PENDING", "Priority"), None, Phase.WAITING, None),
        (seen("PENDING", "JobHeldUser"), None, Phase.HELD, None),
        (seen("RUNNING"), record(ended_at=None, exit_code=None), Phase.RUNNING, None),
        # Its record is there before the queue knows.
        (seen("RUNNING", started_at=AT), record(), Phase.ENDING, None),
        # Queued again: its record is of the start before.
        (seen("PENDING", "BeginTime"), record(exit_code=143), Phase.WAITING, None),
        (seen("RUNNING", started_at=AT + timedelta(hours=1)), record(), Phase.RUNNING, None),
        (seen("COMPLETED"), record(), Phase.ENDED, ExitKind.OK),
        (seen("COMPLETED"), None, Phase.ENDED, ExitKind.OK),
        (seen("FAILED", "NonZeroExitCode"), record(exit_code=3), Phase.ENDED, ExitKind.FAILED),
        (seen("FAILED"), record(exit_code=143, cancelled=True), Phase.ENDED, ExitKind.CANCELLED),
        (seen("FAILED"), record(exit_code=137, oom_kills=1), Phase.ENDED, ExitKind.OUT_OF_MEMORY),
        (seen("OUT_OF_MEMORY"), None, Phase.ENDED, ExitKind.OUT_OF_MEMORY),
        (seen("TIMEOUT", "TimeLimit"), record(), Phase.ENDED, ExitKind.TIMED_OUT),
        (seen("NODE_FAIL"), record(ended_at=None), Phase.ENDED, ExitKind.INFRASTRUCTURE),
        (seen("PREEMPTED"), record(exit_code=143), Phase.ENDED, ExitKind.PREEMPTED),
        # It obeyed the signal before its time was over, so Slurm calls it well.
        (
            seen("COMPLETED", time_limit_s=600.0),
            record(asked_at=BEGAN_S + 580.0),
            Phase.ENDED,
            ExitKind.TIMED_OUT,
        ),
        (None, record(exit_code=3), Phase.ENDED, ExitKind.FAILED),
        (seen("NEW_WORD"), None, Phase.UNKNOWN, None),
    ],
)
def test_what_is_true(queue, wrote, phase, kind):
    job = judged("k", 0, queue, wrote, grace_s=10.0)
    assert (job.phase, job.end and job.end.kind) == (phase, kind)


def test_an_end_that_nobody_saw_is_told_as_such():
    job = judged("k", 0, None, record(ended_at=None, exit_code=None))
    assert (job.phase, job.end, job.reason) == (Phase.ENDED, None, FORGOTTEN)
    assert judged("k", 0, None, None).reason == NEVER_BEGAN
    cancelled = judged("k", 0, None, None, marked=True).end
    assert cancelled is not None
    assert cancelled.kind is ExitKind.CANCELLED
    kept = ("NODE_FAIL", Exit(ExitKind.INFRASTRUCTURE, None, "a node failed under it"))
    job = judged("k", 0, None, record(ended_at=None, exit_code=None), kept=kept)
    assert (job.state, job.end) == kept


def test_who_was_queued_again_is_told_so():
    reason = judged("k", 0, seen("PENDING", "BeginTime"), record()).reason
    assert reason is not None
    assert "put it into the queue again" in reason.sentence


def test_every_base_state_has_a_sentence():
    """Those of `enum job_states` in slurm.h of 22.05, and its flags that squeue writes."""
    base = """PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED
    BOOT_FAIL DEADLINE OUT_OF_MEMORY CONFIGURING COMPLETING RESIZING SPECIAL_EXIT REQUEUED
    REQUEUE_FED REQUEUE_HOLD REVOKED RESV_DEL_HOLD SIGNALING STAGE_OUT STOPPED"""
    assert set(base.split()) <= set(STATES)
    assert all((phase is Phase.ENDED) == (kind is not None) for phase, kind, _ in STATES.values())
    assert read_state("CANCELLED by 1000", "")[1] is ExitKind.CANCELLED


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("QOSMaxGRESPerUser", "its QOS lets no more GPUs be held for you at once"),
        ("AssocGrpGRES", "your account lets no more GPUs be held at once"),
        ("QOSMaxJobsPerUserLimit", "its QOS lets no more jobs be held for you at once"),
        ("AssocMaxJobsLimit", "your account lets no more jobs be held at once"),
        ("QOSMaxMemoryPerJob", "it asks for more memory than its QOS lets one job have"),
        ("QOSGrpCPUMinutesLimit", "its QOS has used up its minutes of CPUs"),
        (
            "AssocGrpCPURunMinutesLimit",
            "the minutes of CPUs that your account lets run at once are taken",
        ),
        (
            "QOSMaxCpuMinutesPerJobLimit",
            "it asks for more CPUs in its time than its QOS lets one job have",
        ),
        (
            "AssocMaxSubmitJobLimit",
            "your account lets no more waiting and running jobs be held at once",
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
            "nodes that it needs are down, drained or reserved",
        ),
        ("Sunspots", "the cluster's reason is Sunspots, which is not known here"),
    ],
)
def test_reasons_are_sentences(code, sentence):
    reason = read_reason(code)
    assert reason is not None
    assert (reason.code, reason.sentence) == (code, sentence)


def test_gpus_are_read_from_gres():
    assert gpus("gpu:a100:4(S:0-1),shard:a100:16,lustre:1") == (GpuKind("a100", 4, 16),)
    assert gpus("gpu:2") == (GpuKind("", 2),)
    assert gpus("gpu:tesla_v100-sxm2-32gb:8(S:0)")[0].type == "tesla_v100-sxm2-32gb"
    assert gpus("(null)") == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [("UNLIMITED", None), ("infinite", None), ("5:00", 300.0), ("1-02:03:04", 93784.0)],
)
def test_durations(text, found):
    assert seconds(text) == found


def test_what_a_cluster_lacks_is_told():
    config = "MinJobAge = 2 sec\nAccountingStorageType = accounting_storage/none\n"
    found = cluster("n1|p|gpu:2|64+|8000|mixed\n", "PartitionName=p State=DOWN MaxNodes=4", config)
    (pool,) = found.pools
    assert pool.nodes[0].host_memory_bytes == 8000 * MIB
    assert (pool.nodes[0].cpus, pool.is_up, pool.max_nodes) == (64, False, 4)
    assert len(found.lacks) == 2


def test_questions_become_rare_with_trouble():
    assert pause_s(0.01, 0) == 5.0
    assert pause_s(2.0, 0) == 40.0  # no more than a twentieth of its time
    assert [pause_s(0.01, failures) for failures in (1, 2, 3, 99)] == [10.0, 20.0, 40.0, 300.0]


def test_the_wrapper_runs_on_an_old_python():
    """Its syntax is 3.8's, and it imports the standard library only, and what lies beside it."""
    parts = {f"headway.engine.{part}" for part in wrapper.PARTS}
    for name in ("wrapper", *wrapper.PARTS):
        source = Path(str(wrapper.__file__)).with_name(f"{name}.py").read_text()
        tree = ast.parse(source, feature_version=(3, 8))
        plain = [one for one in ast.walk(tree) if isinstance(one, ast.Import)]
        assert {alias.name for one in plain for alias in one.names} <= sys.stdlib_module_names
        from_ = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
        modules = {
            f"{one.module}.{one.names[0].name}" if one.module == "headway.engine" else one.module
            for one in from_
        }
        known = {"__future__", "collections.abc", "contextlib", "pathlib", "typing"}
        assert modules <= known | parts


ASKED = Given("gpu", 3600.0, 1000, ("12_3",))


@pytest.mark.parametrize(
    ("asked", "now", "told"),
    [
        (ASKED, Given("gpu", 3600.0, 1000, ("12",)), []),
        (ASKED, Given("gpu", 3600.0, 1000, ()), []),  # that one has ended
        (replace(ASKED, time_limit_s=None), Given("gpu", 60.0, 1000, ()), []),  # the pool's own
        (replace(ASKED, follows=None), Given("gpu", 3600.0, 1000, ("77",)), []),
        (ASKED, Given("cpu", 3600.0, 1000, ()), ["its partition is cpu, not gpu"]),
        (ASKED, Given("gpu", 7200.0, 1000, ()), ["its time limit is 2 h, not 1 h"]),
        (ASKED, Given("gpu", None, 1000, ()), ["its time limit is unlimited, not 1 h"]),
        (ASKED, Given("gpu", 3600.0, 0, ()), ["its nice value is 0, not 1000"]),
        (
            ASKED,
            Given("gpu", 3600.0, 1000, ("12", "77")),
            ["it waits for the end of job 77, too"],
        ),
    ],
)
def test_what_somebody_has_changed_is_told(asked: Given, now: Given, told: list[str]) -> None:
    assert list(changed(asked, now)) == told
