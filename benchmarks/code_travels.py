"""What it costs that code travels: a changed line beside the same program in its image.

One site of its own on the container engine. In turns a folder with one changed line is submitted
by `headway run`, and the same program, built into an image before, by `headway submit`; both from
the start of the command to the moment at which the program prints its first line. What an image
takes to be built is shown apart: whoever has the code in one waits for that, too.

    python benchmarks/code_travels.py [--runs 7] [--files 300]
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from docker import from_env
from submit_latency import Site, first_line_s

from samples.local_image import PYTHON, build

IMAGE = "headway-bench/code:local"
TELL = "import time; print('first line at', time.time(), flush=True)  # {}\n"
SMALL = {"host_memory": "128MiB", "cpus": 0.1}


def make_project(folder: Path, files: int) -> None:
    """A folder with *files* modules of some lines beside the program."""
    (folder / "package").mkdir(parents=True)
    for number in range(files):
        lines = "".join(f"value_{number}_{line} = {line}\n" for line in range(50))
        (folder / "package" / f"module_{number}.py").write_text(lines)
    (folder / "train.py").write_text(TELL.format(0))
    dockerfile = f'FROM {PYTHON}\nCOPY . /app\nWORKDIR /app\nCMD ["python", "train.py"]\n'
    (folder / "Dockerfile").write_text(dockerfile)


def build_image(folder: Path) -> float:
    """Build the folder into the image; how long that took."""
    began = time.perf_counter()
    with_engine = from_env()
    with_engine.images.build(path=str(folder), tag=IMAGE, rm=True)
    with_engine.close()
    return time.perf_counter() - began


def first_line(site: Site, *command: str) -> float:
    """Submit a job; the seconds until its program printed."""
    began = time.time()
    run = json.loads(site.headway(*command, "--json"))["run_id"]
    site.finish(run)
    return first_line_s(site.headway("logs", run), began)


def measure(runs: int, files: int) -> dict[str, list[float]]:
    """Seconds of each way, the first of each left out."""
    home = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    project, job = home / "project", home / "job.json"
    site = Site(home / "site")
    site.env["HEADWAY_RUNTIME"] = "docker"
    found: dict[str, list[float]] = {"code travels": [], "code in the image": [], "build": []}
    build("python", PYTHON)
    make_project(project, files)
    try:
        site.headway("up")
        fields = {"name": "in-image", "image": IMAGE, "command": ["python", "-u", "train.py"]}
        job.write_text(json.dumps(fields | {"resources": SMALL}))
        small = [f"--set=resources.{name}={value}" for name, value in SMALL.items()]
        travels = ("run", "train.py", "--workdir", str(project), "--image", PYTHON, "-d", *small)
        jitter = random.Random(0)  # polls must not be met at one phase
        for turn in range(runs + 1):
            (project / "train.py").write_text(TELL.format(turn))
            taken = {"build": build_image(project)}
            for way, command in (
                ("code travels", travels),
                ("code in the image", ("submit", str(job))),
            ):
                time.sleep(jitter.uniform(0, 3))
                taken[way] = first_line(site, *command)
            for way, seconds in taken.items():
                print(f"{turn or 'first'} {way}: {seconds:.2f} s")
                if turn:
                    found[way].append(seconds)
    finally:
        site.headway("down", "--stop", "--yes")
        shutil.rmtree(home, ignore_errors=True)
    return found


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--files", type=int, default=300)
    options = parser.parse_args()
    found = measure(options.runs, options.files)
    middle = {way: statistics.median(taken) for way, taken in found.items()}
    for way, taken in found.items():
        low, high = min(taken), max(taken)
        print(f"{way:18} median {middle[way]:.2f} s ({low:.2f} to {high:.2f}), {len(taken)} runs")
    ratio = middle["code travels"] / middle["code in the image"]
    print(f"second submit to first line, code that travels ÷ code in the image: {ratio:.2f}")


if __name__ == "__main__":
    main()
