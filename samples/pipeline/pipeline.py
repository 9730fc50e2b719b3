"""Stage, train three at once, pick the best, evaluate it: one flow, one DAG in Prefect's UI.

python -m samples.pipeline.pipeline    # serves it: it is started in the UI, or by
prefect deployment run pipeline/pipeline --param steps=40
"""

from typing import Any

from prefect import flow, task

from headway import Job
from headway.tasks import train

IMAGE = "headway-samples:local"
DESCEND = ["python", "-m", "samples.chain.train"]
RATES = (0.01, 0.1, 0.4)


def job(name: str, command: list[str]) -> Job:
    """A small job."""
    return Job(name=name, image=IMAGE, command=command)


@task
def pick(runs: list[dict[str, Any]]) -> float:
    """The learning rate of the run with the smallest last loss."""
    losses = [run["progress"]["metrics"]["loss"] for run in runs]
    return min(zip(losses, RATES, strict=True))[1]


@flow(log_prints=True)
def pipeline(steps: int = 20) -> None:
    """Each `train` waits for a run of headway, which waits in the queue as any other."""
    staged = train.submit(job("stage", ["python", "-c", "print('data is there')"]))
    # `return_state=False` is the default; Prefect's types want it beside `wait_for`.
    variants = [
        train.submit(
            job(f"train-{rate}", [*DESCEND, "--lr", str(rate), "--steps", str(steps)]),
            wait_for=[staged],
            return_state=False,
        )
        for rate in RATES
    ]
    ended = [each.result() for each in variants]
    best = pick.submit(ended, wait_for=variants, return_state=False)
    rate = best.result()
    evaluated = train.submit(
        job("evaluate", [*DESCEND, "--lr", str(rate), "--steps", "5"]),
        wait_for=[best],
        return_state=False,
    )
    loss = evaluated.result()["progress"]["metrics"]["loss"]
    print(f"best learning rate {rate}, loss {loss:.3g}")


if __name__ == "__main__":
    pipeline.serve(name="pipeline")
