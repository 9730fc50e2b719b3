"""Traces for the tests of the replay."""

from collections.abc import Sequence

from hypothesis import strategies as st

from headway.policy.settings import PolicySettings
from headway.replay.cluster import Shape
from headway.replay.simulate import PolicyName, Result, simulate
from headway.replay.trace_jobs import Estimates, GpuSharing, TraceJob

SHAPE = Shape(2, 2, 24)


def job(name: str, submit_s: float, duration_s: float, gpus: int = 1, **more: object) -> TraceJob:
    values = {
        "gpu_memory_bytes": 10,
        "gpu_util_frac": 0.4,
        "predicted_s": (duration_s, duration_s),
    } | more
    return TraceJob(name, "team", submit_s, duration_s, gpus, **values)  # type: ignore[arg-type]


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    rows, now_s = [], 0.0
    for at in range(draw(st.integers(1, 25))):
        now_s += draw(st.integers(0, 20))
        duration_s = float(draw(st.integers(1, 200)))
        median_s = duration_s * draw(st.sampled_from([0.5, 1.0, 2.0]))
        rows.append(
            job(
                f"j{at}",
                now_s,
                duration_s,
                draw(st.integers(1, 4)),
                gpu_memory_bytes=draw(st.integers(1, 24)),
                gpu_util_frac=draw(st.integers(1, 10)) / 10,
                predicted_s=(median_s, median_s * 1.5),
            )
        )
    return rows


def run(
    rows: Sequence[TraceJob],
    policy: str = "headway",
    sharing: str = "headway",
    shape: Shape = SHAPE,
    estimates: str = "given",
    **knobs: float,
) -> Result:
    settings = PolicySettings(**knobs)  # type: ignore[arg-type]
    return simulate(
        rows,
        shape,
        PolicyName(policy),
        GpuSharing(sharing),
        Estimates(estimates),
        settings=settings,
    )


def starts(result: Result) -> dict[str, float]:
    return {one.trace.job_id: one.start_s for one in result.jobs}
