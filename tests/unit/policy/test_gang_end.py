from headway.model.run import Exit, ExitKind
from headway.policy.gang_end import (
    BLAME_WITHIN_S,
    END_TOGETHER_S,
    SILENT_S,
    START_TOGETHER_S,
    TAKE_WITHIN_S,
    Rank,
    verdict,
    why_not_start,
    why_stop,
)

OK = Exit(ExitKind.OK, 0, "ok")
FAILED = Exit(ExitKind.FAILED, 1, "exit code 1")
KILLED = Exit(ExitKind.OUT_OF_MEMORY, 137, "killed at 8.0 GiB")


def rank(
    number: int,
    exit_: Exit | None = None,
    *,
    begun: bool = True,
    ready: bool = True,
    silent_s: float = 0.0,
    quiet_s: float = 0.0,
):
    return Rank(number, f"node-{number}", begun, ready, exit_, silent_s, quiet_s)


def test_all_is_well_while_the_others_run_or_have_ended_well() -> None:
    assert why_stop([rank(1), rank(2, OK)], 1e6) is None


def test_the_failure_of_one_ends_all_and_is_named() -> None:
    found = why_stop([rank(1), rank(2, FAILED)], 10.0)
    assert found == Exit(ExitKind.FAILED, 1, "rank 2 on node-2: exit code 1")


def test_a_rank_that_never_begins_or_falls_silent_is_the_sites_fault() -> None:
    assert why_stop([rank(1, begun=False)], TAKE_WITHIN_S - 1) is None
    late = why_stop([rank(1, begun=False)], TAKE_WITHIN_S + 1)
    assert late is not None
    assert late.kind is ExitKind.INFRASTRUCTURE
    assert why_stop([rank(1, silent_s=SILENT_S - 1)], 500.0) is None
    lost = why_stop([rank(1, silent_s=SILENT_S + 1)], 500.0)
    assert lost is not None
    assert lost.kind is ExitKind.INFRASTRUCTURE
    assert "node-1 is lost" in lost.message


def test_a_gang_waits_for_a_long_copy_and_names_who_is_late_in_the_end() -> None:
    ranks = [rank(1), rank(2, ready=False), rank(3, ready=False)]
    assert why_not_start(ranks, START_TOGETHER_S) is None
    late = why_not_start(ranks, START_TOGETHER_S + 1)
    assert late == Exit(
        ExitKind.INFRASTRUCTURE,
        None,
        "rank 2 on node-2 and rank 3 on node-3 had not brought data and image for 3601 s when all "
        "others waited to start; all ranks start anew together",
    )
    assert why_not_start([rank(1)], START_TOGETHER_S + 1) is None


def test_a_gang_whose_part_fails_or_is_lost_before_the_start_does_not_start() -> None:
    missing = Exit(ExitKind.REFUSED, None, "data set /data/x: not there")
    found = why_not_start([rank(1, missing, ready=False)], 1.0)
    assert found == Exit(ExitKind.REFUSED, None, "rank 1 on node-1: data set /data/x: not there")
    lost = why_not_start([rank(1, ready=False, silent_s=SILENT_S + 1)], 1.0)
    assert lost is not None
    assert "node-1 is lost" in lost.message


def test_an_end_waits_for_the_others_a_while() -> None:
    assert verdict(OK, [rank(1)], END_TOGETHER_S - 1) is None
    assert verdict(OK, [rank(1)], END_TOGETHER_S) == OK
    assert verdict(FAILED, [rank(1)], BLAME_WITHIN_S - 1) is None
    assert verdict(FAILED, [rank(1)], BLAME_WITHIN_S) == FAILED
    assert verdict(FAILED, [rank(1, begun=False)], 0.0) == FAILED


def test_a_rank_out_of_memory_is_to_blame_whoever_ended_first() -> None:
    found = verdict(FAILED, [rank(1, FAILED), rank(2, KILLED)], 0.0)
    assert found is not None
    assert (found.kind, found.message) == (
        ExitKind.OUT_OF_MEMORY,
        "rank 2 on node-2: killed at 8.0 GiB",
    )


def test_what_ended_one_by_itself_is_named_before_those_that_lost_it() -> None:
    found = why_stop([rank(1, FAILED), rank(2, KILLED)], 10.0)
    assert found is not None
    assert found.message == "rank 2 on node-2: killed at 8.0 GiB"


def test_a_rank_whose_node_is_gone_is_to_blame_long_before_its_lease_expires() -> None:
    """Its peers fail at once, by an error of their own, which must not end the run."""
    gone = rank(2, quiet_s=BLAME_WITHIN_S + 12)
    assert verdict(FAILED, [rank(1, FAILED), gone], BLAME_WITHIN_S - 1) is None
    found = verdict(FAILED, [rank(1, FAILED), gone], BLAME_WITHIN_S)
    assert found == Exit(
        ExitKind.INFRASTRUCTURE,
        None,
        "rank 2 on node-2 is lost: not heard of for 42 s; all ranks start anew together",
    )
    # One that gave a sign of life since only takes long to end.
    assert verdict(FAILED, [rank(2, quiet_s=BLAME_WITHIN_S - 1)], BLAME_WITHIN_S) == FAILED
    assert verdict(OK, [gone], END_TOGETHER_S) == OK


def test_a_rank_that_fails_after_rank_0_ended_well_fails_the_run() -> None:
    found = verdict(OK, [rank(1, FAILED)], 1.0)
    assert found is not None
    assert found.kind is ExitKind.FAILED


def test_what_headway_ended_is_blamed_on_nobody() -> None:
    stopped = Exit(ExitKind.TIMED_OUT, 143, "longer than 4 h")
    assert verdict(stopped, [rank(1, KILLED), rank(2)], 0.0) == stopped
