"""Stage, train three variants after it, pick the best, and go on from that one.

headway login …    # or on the site's own machine
python -m samples.chain.chain
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from headway import After, Client, Job, Run

IMAGE = "headway-samples:local"
TRAIN = ["python", "-m", "samples.chain.train"]


def job(name: str, command: list[str], *, after: Run | None = None) -> Job:
    """A small job, which follows *after* where one is given."""
    follows = None if after is None else After(run=after.run_id)
    return Job(name=name, image=IMAGE, command=command, after=follows)


def loss_of(run: Run) -> float:
    """The last loss that a run which has ended told of."""
    return float(run["progress"]["metrics"]["loss"])


def main() -> None:
    """Run the chain; the last run starts only after the best one, whatever happens here."""
    with Client() as client:
        stage = client.submit(job("stage", ["python", "-c", "print('data is there')"]))
        variants = [
            client.submit(job(f"train-{lr}", [*TRAIN, "--lr", str(lr)], after=stage))
            for lr in (0.01, 0.1, 0.4)
        ]
        for run in client.as_completed(variants):
            print(f"{run['name']}: {run['state']}, loss {loss_of(run):.3g}")
        best = min((run.wait() for run in variants), key=loss_of)
        more = client.submit(job("evaluate", [*TRAIN, "--lr", "0.4", "--steps", "5"], after=best))
        with TemporaryDirectory() as folder:
            (found,) = more.wait().outputs(Path(folder) / "evaluate")
            print(f"best is {best['name']}, x = {json.loads(found.read_text())['x']:.3f}")


if __name__ == "__main__":
    main()
