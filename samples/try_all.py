"""Hands in every sample to the site that is up here, on the CPU, and waits for their ends.

python -m samples.try_all [KEY=VALUE …]    # fields of each job, as for `headway submit --set`
"""

import sys
import time
from pathlib import Path

from headway import Client
from headway.errors import RunFailed
from headway.model.job_text import JobText, read_job

SAMPLES = Path(__file__).parent
NEEDS_MORE = ("digits", "flights")
"""Those whose image or data `make demo` makes; it runs them."""
ON_THE_CPU = ("resources.gpus=0", "resources.nodes=1", "resources.cpus=1")
ENDED = ("Completed", "Failed", "Cancelled")
_LOOK_EVERY_S = 2.0


def jobs(overrides: list[str]) -> list[tuple[Path, JobText]]:
    """Folder and job of each sample, as it runs where there is no GPU."""
    found = sorted(set(SAMPLES.glob("*/job.yaml")) - {SAMPLES / n / "job.yaml" for n in NEEDS_MORE})
    return [
        (path.parent, read_job(path.read_bytes(), filename=str(path), overrides=overrides))
        for path in found
    ]


def tried(client: Client, folder: Path, read: JobText) -> str:
    """How the sample in *folder* ended."""
    job = read.job.document() | {"workdir": str(folder)}
    if read.array is None:
        run = client.submit(job)
        try:
            ended = run.wait()
        except RunFailed as failure:
            return str(failure)
        return f"{ended['state']}, {ended['measured']['runtime_s']:.0f} s"
    made = client.submit_array(job | {"array": read.array.document()})
    while (seen := client.array(made["array_id"]))["state"] not in ENDED:
        time.sleep(_LOOK_EVERY_S)
    return f"{seen['state']}, {seen['ended_well']} of {seen['size']} ended well"


def main() -> int:
    """Try them one after the other; 1 if one did not end well."""
    failed = 0
    with Client() as client:
        for folder, read in jobs([*ON_THE_CPU, *sys.argv[1:]]):
            print(f"{folder.name}: ", end="", flush=True)
            how = tried(client, folder, read)
            print(how, flush=True)
            failed += not how.startswith("Completed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
