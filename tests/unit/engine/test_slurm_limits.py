"""What Slurm says of the limits of accounts and QOS, as it was recorded."""

from datetime import UTC, datetime

import pytest

from headway.engine.slurm_limits import Limit, is_limit, limit_reason, read_limits

RECORDED = """\
Current Association Manager state
ClusterName=bench Account=root UserName= Partition= ID=1 GrpTRES=cpu=9(9) GrpTRESMins=cpu=5(5)
ClusterName=bench Account=vision UserName= Partition= ParentAccount=root(1) GrpJobs=1(1) \
GrpTRES=cpu=8(4),mem=N(10)
ClusterName=bench Account=vision UserName=ada(1000) Partition= ParentAccount= GrpTRES=cpu=6(4)
ClusterName=bench Account=vision UserName=ada(1000) Partition=debug GrpTRES=cpu=4(4)
ClusterName=bench Account=vision UserName=bob(1001) Partition= GrpJobs=0(0) GrpTRES=cpu=1(0)
QOS Records
QOS=short(2) GrpJobs=9(3) GrpTRES=cpu=N(1),mem=500(490) Account Limits= lab={MaxJobsPA=N(1)} \
User Limits= 0={MaxJobsPU=9(9)} 1000={MaxJobsPU=2(2) MaxTRESPU=cpu=N(1),gres/gpu=4(4)}
"""
KNOWN = read_limits(RECORDED, "ada", 1000)
JOB = {"QOS": "short", "Assoc": "vision"}


def test_the_narrowest_limit_counts_of_an_account_those_above_it_and_ones_own() -> None:
    assert KNOWN["Assoc", "vision"] == {
        "GrpJobs": Limit(1, 1), "GrpTRES.cpu": Limit(9, 9), "GrpTRESMins.cpu": Limit(5, 5)
    }  # fmt: skip
    assert KNOWN["QOS", "short"] == {
        "GrpJobs": Limit(9, 3), "GrpTRES.mem": Limit(500, 490), "MaxJobsPU": Limit(2, 2),
        "MaxTRESPU.gres/gpu": Limit(4, 4),
    }  # fmt: skip


def test_accounts_that_are_above_each_other_end() -> None:
    said = (
        "Account=a UserName= Partition= ParentAccount=b(2)\nAccount=b UserName= ParentAccount=a(1)"
    )
    assert read_limits(said, "ada", 1000) == {("Assoc", "a"): {}, ("Assoc", "b"): {}}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("QOSMaxGRESPerUser", "its QOS short lets no more GPUs be held for you at once (limit 4, "),
        ("QOSMaxJobsPerUserLimit", "no more jobs be held for you at once (limit 2, held 2)"),
        ("QOSGrpMemLimit", "no more memory be held at once (limit 500 MiB, held 490 MiB)"),
        ("AssocGrpCpuLimit", "your account lets no more CPUs be held at once (limit 9, held 9)"),
        ("AssocGrpNodeLimit", "your account lets no more nodes be held at once"),
        ("QOSGrpJobsLimit", "its QOS lets no more jobs be held at once"),  # another one's, then
        ("AssocGrpCPUMinutesLimit", "your account has used up its minutes of CPUs"),
    ],
)
def test_how_much_is_held_is_told_where_it_is_known(code: str, told: str) -> None:
    reason = limit_reason(code, JOB, KNOWN, {})
    assert is_limit(code)
    assert reason is not None
    assert told in reason.sentence
    assert reason.sentence.endswith(told) or "(" in told


def test_when_the_first_of_ones_own_ends_is_told() -> None:
    ends = {("QOS", "short"): datetime(2026, 11, 28, 14, 20, tzinfo=UTC)}
    reason = limit_reason("QOSMaxGRESPerUser", JOB, KNOWN, ends)
    assert reason is not None
    assert reason.sentence.endswith(
        "(limit 4, held 4; the first of yours ends by 28 Nov 2026 14:20 UTC)"
    )


def test_what_speaks_of_no_limit_has_none() -> None:
    assert not is_limit("Resources")
    assert limit_reason("Resources", JOB, KNOWN, {}) is None
