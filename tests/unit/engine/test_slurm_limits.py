"""What Slurm says of the limits of accounts and QOS, as it was recorded."""

from datetime import UTC, datetime

import pytest

from headway.engine.slurm_limits import Limit, is_limit, limit_reason, read_limits

RECORDED = """\
Current Association Manager state
ClusterName=bench Account=vision UserName= Partition= GrpJobs=1(1) GrpTRES=cpu=8(4),mem=N(10)
ClusterName=bench Account=vision UserName=ada(1000) Partition= GrpJobs=N(1) GrpTRES=cpu=6(4)
ClusterName=bench Account=vision UserName=bob(1001) Partition= GrpJobs=0(0) GrpTRES=cpu=1(0)
QOS Records
QOS=short(2) GrpJobs=N(1) GrpTRES=cpu=N(1),mem=500(10) Account Limits= lab={MaxJobsPA=N(1)} \
User Limits= 0={MaxJobsPU=9(9)} 1000={MaxJobsPU=2(1) MaxTRESPU=cpu=N(1),gres/gpu=4(4)}
"""
KNOWN = read_limits(RECORDED, "ada", 1000)
JOB = {"QOS": "short", "Assoc": "vision"}


def test_of_an_account_and_ones_own_the_narrower_limit_counts_and_no_other_users() -> None:
    assert KNOWN["Assoc", "vision"] == {"GrpJobs": Limit(1, 1), "GrpTRES.cpu": Limit(6, 4)}
    assert KNOWN["QOS", "short"] == {
        "GrpTRES.mem": Limit(500, 10), "MaxJobsPU": Limit(2, 1), "MaxTRESPU.gres/gpu": Limit(4, 4)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("QOSMaxGRESPerUser", "no more GPUs be held for you at once (limit 4, held 4)"),
        ("QOSMaxJobsPerUserLimit", "its QOS short lets no more jobs be held for you"),
        ("QOSGrpMemLimit", "no more memory be held at once (limit 500 MiB, held 10 MiB)"),
        ("AssocGrpCpuLimit", "your account lets no more CPUs be held at once (limit 6, held 4)"),
        ("AssocGrpNodeLimit", "your account lets no more nodes be held at once"),
    ],
)
def test_how_much_is_held_is_told_where_it_is_known(code: str, told: str) -> None:
    reason = limit_reason(code, JOB, KNOWN, {})
    assert is_limit(code)
    assert reason is not None
    assert told in reason.sentence
    assert ("(" in reason.sentence) == (code != "AssocGrpNodeLimit")


def test_when_the_first_of_ones_own_ends_is_told() -> None:
    ends = {("QOS", "short"): datetime(2026, 11, 28, 14, 20, tzinfo=UTC)}
    reason = limit_reason("QOSMaxGRESPerUser", JOB, KNOWN, ends)
    assert reason is not None
    assert reason.sentence.endswith(
        "(limit 4, held 4; the first of yours ends by 28 Nov 14:20 UTC)"
    )


def test_what_speaks_of_no_limit_has_none() -> None:
    assert not is_limit("Resources")
    assert limit_reason("Resources", JOB, KNOWN, {}) is None
