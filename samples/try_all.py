"""Submits the samples that bring their code along to the site here, without GPUs, one by one.

python -m samples.try_all [KEY=VALUE …]    # fields of each job, as for `headway submit --set`
"""

import sys
import time
from pathlib import Path

from headway import Client
from headway.errors import RunFailed
from headway.model.job_text import JobText, read_job

SAMPLES = Path(__file__).parent
ON_THE_CPU = ("resources.gpus=0", "resources.nodes=1", "resources.cpus=1")
ENDED = ("Completed", "Failed", "Cancelled")
_LOOK_EVERY_S = 2.0


def jobs(overrides: list[str]) -> list[tuple[Path, JobText]]:
    """Folder and job of each sample that brings its code along, as it runs without a GPU.

    The others need the image that `make demo` makes.
    """
    files = sorted(SAMPLES.glob("*/job.yaml"))
    found = [
        (file.parent, read_job(file.read_bytes(), filename=str(file), overrides=overrides))
        for file in files
    ]
    return [(folder, read) for folder, read in found if read.job.workdir]


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
