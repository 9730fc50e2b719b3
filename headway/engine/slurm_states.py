"""Slurm's words for states and reasons, each with what it means and what to do.

The states are those of `job_state_string` in Slurm's `src/common/slurm_protocol_defs.c` and of
"JOB STATE CODES" in `man squeue`, the reasons those of `job_reason_string` there, of "JOB REASON
CODES" and of https://slurm.schedmd.com/resource_limits.html; all as of 22.05, with what came until
24.11. A word that is not here is told as it is, and its job taken to go on.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headway.engine.judge import IN_VAIN
from headway.engine.port import Phase, Reason
from headway.engine.slurm_limits import LESS, NEVER, NOBODYS, Ends, Limits, Whose, limit_reason
from headway.model.run import ExitKind

STATES: Mapping[str, tuple[Phase, ExitKind | None, str]] = {
    "PENDING": (Phase.WAITING, None, "it waits in the cluster's queue"),
    "REQUEUED": (Phase.WAITING, None, "it was put into the queue again"),
    "REQUEUE_FED": (Phase.WAITING, None, "it was put into the queue of its federation again"),
    "REQUEUE_HOLD": (Phase.HELD, None, "it was put into the queue again, and is held there"),
    "SPECIAL_EXIT": (Phase.HELD, None, "its exit code is one that the cluster holds jobs for"),
    "RESV_DEL_HOLD": (Phase.HELD, None, "its reservation was deleted, so it is held"),
    "CONFIGURING": (Phase.RUNNING, None, "its nodes are made ready"),
    "RUNNING": (Phase.RUNNING, None, "it runs"),
    "RESIZING": (Phase.RUNNING, None, "it runs, and gets another size"),
    "SIGNALING": (Phase.RUNNING, None, "it is being sent a signal"),
    "SUSPENDED": (Phase.SUSPENDED, None, "it is suspended, and keeps its memory"),
    "STOPPED": (Phase.SUSPENDED, None, "it was stopped by a signal, and keeps its CPUs"),
    "COMPLETING": (Phase.ENDING, None, "it is over, and its nodes are being cleaned up"),
    "STAGE_OUT": (Phase.ENDING, None, "it is over, and its files are being copied"),
    "COMPLETED": (Phase.ENDED, ExitKind.OK, "it ended well"),
    "FAILED": (Phase.ENDED, ExitKind.FAILED, "its program failed"),
    "CANCELLED": (
        Phase.ENDED,
        ExitKind.CANCELLED,
        "somebody cancelled it with the cluster's own commands",
    ),
    "TIMEOUT": (Phase.ENDED, ExitKind.TIMED_OUT, "it was ended at its time limit"),
    "DEADLINE": (Phase.ENDED, ExitKind.TIMED_OUT, "it was ended at its deadline"),
    "OUT_OF_MEMORY": (Phase.ENDED, ExitKind.OUT_OF_MEMORY, "it was killed at its memory limit"),
    "NODE_FAIL": (Phase.ENDED, ExitKind.INFRASTRUCTURE, "a node failed under it"),
    "BOOT_FAIL": (Phase.ENDED, ExitKind.INFRASTRUCTURE, "its nodes could not be booted"),
    "LAUNCH_FAILED": (Phase.ENDED, ExitKind.INFRASTRUCTURE, "its node could not start it"),
    "RECONFIG_FAIL": (Phase.ENDED, ExitKind.INFRASTRUCTURE, "its nodes could not be set up"),
    "PREEMPTED": (Phase.ENDED, ExitKind.PREEMPTED, "a job of more priority took its place"),
    "REVOKED": (Phase.ENDED, ExitKind.CANCELLED, "another cluster of its federation started it"),
}

_BROKEN = "tell the cluster's operators; it goes on by itself when they have mended it"
_NOTHING = ""
_REASONS: Mapping[str, tuple[str, str]] = {
    "Priority": ("jobs with a higher priority wait before it", _NOTHING),
    "Resources": ("it is the next, and what it asks for is not free yet", _NOTHING),
    "None": ("the scheduler has not looked at it yet", _NOTHING),
    "WaitingForScheduling": ("the scheduler has not looked at it yet", _NOTHING),
    "Dependency": ("it waits for the end of another job", _NOTHING),
    "DependencyNeverSatisfied": (
        IN_VAIN,
        "see why that one ended so, and submit both again",
    ),
    "JobHeldUser": ("its user holds it", "release it: scontrol release JOB"),
    "JobHeldAdmin": ("an operator of the cluster holds it", "ask them why"),
    "JobArrayTaskLimit": ("as many members of its array run as may at once", _NOTHING),
    "BeginTime": ("it was put off, as after a requeue", _NOTHING),
    "Cleaning": ("the start before is still being cleaned up", _NOTHING),
    "Prolog": ("the cluster prepares its nodes", _NOTHING),
    "Licenses": ("a licence that it needs is in use", _NOTHING),
    "Reservation": ("its reservation has not begun yet", _NOTHING),
    "ReqNodeNotAvail": ("nodes that it needs are down, drained or reserved", _BROKEN),
    "NodeDown": ("a node that it needs is down", _BROKEN),
    "PartitionDown": ("its partition is down: it takes jobs, and starts none", _BROKEN),
    "PartitionInactive": ("its partition is out of use", "submit it to another pool"),
    "PartitionNodeLimit": ("its partition gives no job so many nodes", NEVER),
    "PartitionTimeLimit": ("its time limit is longer than its partition's", NEVER),
    "PartitionConfig": ("its partition does not take it", NEVER),
    "AccountNotAllowed": ("its account may not use this partition", NEVER),
    "QOSNotAllowed": ("its QOS may not be used here", NEVER),
    "InvalidAccount": ("the cluster does not know its account", NEVER),
    "InvalidQOS": ("the cluster does not know its QOS", NEVER),
    "BadConstraints": ("no node has what it asks for", NEVER),
    "AssociationJobLimit": ("as many of your jobs run as your account may have", LESS),
    "AssociationResourceLimit": ("your jobs hold as much as your account may have", LESS),
    "AssociationTimeLimit": ("your account has used up its time", LESS),
    "QOSJobLimit": ("as many jobs run as its QOS lets", LESS),
    "QOSResourceLimit": ("the jobs of its QOS hold as much as they may", LESS),
    "QOSTimeLimit": ("its QOS has used up its time", LESS),
    "QOSUsageThreshold": ("too little of its QOS is left", LESS),
    "NonZeroExitCode": ("its program ended with an exit code other than 0", "see its log"),
    "RaisedSignal": ("its program was killed by a signal", "see its log"),
    "OutOfMemory": ("it was killed at its memory limit", "give it more memory"),
    "TimeLimit": ("it was ended at its time limit", "give it more time"),
    "JobLaunchFailure": (
        "its node could not start it: its folder is not there, or its user is not known there",
        "see that the shared folder is on every node",
    ),
    "launch_failed_requeued_held": (
        "its node could not start it, so it was put into the queue again and is held",
        "see that the shared folder is on every node, then scontrol release JOB",
    ),
    "SystemFailure": ("the cluster itself failed", _BROKEN),
    "InactiveLimit": ("it did nothing for longer than the cluster lets", _NOTHING),
}
_HOLDS = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "launch_failed_requeued_held", "job_requeued_in_held_state"}
)


def read_state(word: str, reason: str) -> tuple[Phase, ExitKind | None, str]:
    """What a state means: phase, how it ended where it has, and a sentence.

    Args:
        word: As `squeue` writes it; with ``by UID`` after it, as `sacct` does.
        reason: Beside it: a job that is held is PENDING as others are.
    """
    base = word.split(" ", maxsplit=1)[0].rstrip("+")
    phase, kind, sentence = STATES.get(
        base, (Phase.UNKNOWN, None, f"the cluster calls its state {base}, which is not known here")
    )
    if phase is Phase.WAITING and reason in _HOLDS:
        phase = Phase.HELD
    if kind is ExitKind.CANCELLED and reason in {"Dependency", "DependencyNeverSatisfied"}:
        sentence = _REASONS["DependencyNeverSatisfied"][0]
    return phase, kind, sentence


def read_reason(
    code: str,
    job: Whose = NOBODYS,
    known: Limits = MappingProxyType({}),
    ends: Ends = MappingProxyType({}),
) -> Reason | None:
    """What a reason means; None where there is none.

    Args:
        code: As Slurm writes it.
        job: The QOS and the account of the job.
        known: Limits, as far as Slurm tells them.
        ends: When the first of the user's own jobs ends at its time limit.
    """
    if code in {"", "None", "(null)"}:
        return None
    base = code.strip("()").split(",")[0].split("(")[0].strip()
    if base in _REASONS:
        return Reason(code, *_REASONS[base])
    if limited := limit_reason(base, job, known, ends):
        return limited
    return Reason(code, f"the cluster's reason is {code}, which is not known here")
