"""A day's work with a stop-watch: with headway, with Debian's Slurm and with `docker run`.

From a fresh folder with a program and its requirements to the first line of its log, the same
after one changed line, twenty variants with the table of their results, and the best one's files.
What a person types and what she writes into files is counted. headway is used from a laptop in a
network of its own, and its first two runs start on another node than its server's. Slurm has one
node whose disk is the laptop's, and the engine is this machine's: bringing files there and back is
in headway's times alone.

    python benchmarks/day.py [--json FILE]      # root; an engine, PostgreSQL, iproute2, slurm-wlm
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from docker import DockerClient
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from samples.local_image import python_root  # noqa: E402 - from the project's root
from tests.support import machines, slurm  # noqa: E402
from tests.support.small_wheel import small_wheel  # noqa: E402

IMAGE = "headway-bench/pip:local"
STEPS = ("first line", "changed line", "20 variants, table", "the best one's files")
GIVE_UP_S = 600.0

TRAIN = """\
import argparse, math, os, pathlib, time
print("first line at", time.time(), flush=True)
import small
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default=os.environ.get("HEADWAY_OUTPUTS", "out"))
asked = parser.parse_args()
for epoch in range(1, 11):
    time.sleep(0.1)
    loss = abs(math.log10(asked.lr) + 2) + asked.seed / 100 + 1 / epoch
    print(f"Epoch {epoch}/10 loss: {loss:.4f}", flush=True)
out = pathlib.Path(asked.out)
out.mkdir(parents=True, exist_ok=True)
(out / "model.json").write_text(f"{asked.lr} {asked.seed}\\n")
"""
REQUIREMENTS = "--no-index\n--find-links wheels\nsmall==1.0\n"
FIRST_LINE = re.compile(r"first line at (\d+\.\d+)")
BEST_FIRST = re.compile(r"\A[^\n]*(\n[^\n]*){0,2}\b0\.01\b.*\b0\.5\b", re.DOTALL)
"""The table has the best learning rate within its first lines, and the worst one below."""
MODEL = re.compile(r"model\.json")

SLURM_JOB = """\
#!/bin/bash
#SBATCH --cpus-per-task=1 --mem=512M --output=%j.out
env/bin/python -u train.py
"""
SLURM_ARRAY = """\
#!/bin/bash
#SBATCH --cpus-per-task=1 --mem=512M --output=sweep-%a.out --array=0-19
lrs=(0.5 0.1 0.05 0.01 0.001)
lr=${lrs[SLURM_ARRAY_TASK_ID / 4]}
seed=$((SLURM_ARRAY_TASK_ID % 4 + 1))
echo "lr $lr seed $seed"
env/bin/python -u train.py --lr $lr --seed $seed --out out/$lr-$seed
"""
DOCKERFILE = f"""\
FROM {IMAGE}
WORKDIR /app
COPY requirements.txt .
COPY wheels wheels
RUN python -m pip install --root-user-action=ignore -r requirements.txt
COPY train.py .
"""
DOCKER_SWEEP = """\
#!/bin/bash
mkdir -p logs
for lr in 0.5 0.1 0.05 0.01 0.001; do
  for seed in 1 2 3 4; do echo $lr $seed; done
done | xargs -P 2 -L 1 bash -c '
  echo "lr $0 seed $1" >logs/$0-$1
  docker run --rm --cpus 1 --memory 512m -v "$PWD/out/$0-$1:/app/out" mine python -u train.py \\
    --lr $0 --seed $1 >>logs/$0-$1'
"""


@dataclass(frozen=True)
class Step:
    """What a person does, and what she waits to see."""

    typed: tuple[str, ...]
    """In order; the last one is typed again until it prints `seen`, and counts once."""
    seen: re.Pattern[str]
    written: Mapping[str, str] = field(default_factory=dict)
    """Files that she writes before."""


@dataclass(frozen=True)
class Taken:
    """What a step took; times in seconds."""

    commands: int
    lines_written: int
    seconds: float


def with_headway() -> list[Step]:
    """The steps with headway, which asks for no file of its own."""
    run = f"headway run train.py --image {IMAGE} --requirements requirements.txt"
    values = "--array lr=0.5,0.1,0.05,0.01,0.001 --array seed=1..4"
    sweep = f"{run} --name sweep {values} -- --lr {{lr}} --seed {{seed}}"
    return [
        Step((f"{run} --node other",), FIRST_LINE),
        Step((f"{run} --node other",), FIRST_LINE),
        Step((sweep, "headway results sweep --sort loss"), BEST_FIRST),
        Step(("headway outputs sweep-13 best && ls best",), MODEL),
    ]


def with_slurm() -> list[Step]:
    """The steps with Slurm, typed on a login node that shares the nodes' disk."""
    table = 'for f in sweep-*.out; do echo "$(head -n1 $f) $(tail -n1 $f)"; done | sort -n -k8'
    environment = ("python3 -m venv env", "env/bin/pip install -r requirements.txt")
    return [
        Step(
            (*environment, "sbatch job.sh", "tail -n +1 1.out"), FIRST_LINE, {"job.sh": SLURM_JOB}
        ),
        Step(("sbatch job.sh", "tail -n +1 2.out"), FIRST_LINE),
        Step(("sbatch --wait array.sh", table), BEST_FIRST, {"array.sh": SLURM_ARRAY}),
        Step(("cp -r out/0.01-1 best && ls best",), MODEL),
    ]


def with_docker() -> list[Step]:
    """The steps with the engine alone, typed on its machine."""
    run = 'docker run --rm --cpus 1 --memory 512m -v "$PWD/out:/app/out" mine python -u train.py'
    table = 'for f in logs/*; do echo "$(head -n1 $f) $(tail -n1 $f)"; done | sort -n -k8'
    built = "docker build -q -t mine ."
    return [
        Step((built, run), FIRST_LINE, {"Dockerfile": DOCKERFILE}),
        Step((built, run), FIRST_LINE),
        Step(("bash sweep.sh", table), BEST_FIRST, {"sweep.sh": DOCKER_SWEEP}),
        Step(("cp -r out/0.01-1 best && ls best",), MODEL),
    ]


def take(step: Step, folder: Path, types: Callable[[str], str]) -> Taken:
    """Write and type what *step* says in *folder*, until what is waited for is seen."""
    for name, text in step.written.items():
        (folder / name).write_text(text)
    began = time.time()
    for command in step.typed[:-1]:
        types(command)
    while not (found := step.seen.search(said := types(step.typed[-1]))):
        if time.time() - began > GIVE_UP_S:
            raise SystemExit(f"{step.typed[-1]} still says:\n{said}")
        time.sleep(0.1)
    until = float(found.group(1)) if step.seen is FIRST_LINE else time.time()
    lines = sum(len(text.splitlines()) for text in step.written.values())
    return Taken(len(step.typed), lines, until - began)


def day(folder: Path, steps: list[Step], types: Callable[[str], str]) -> list[Taken]:
    """All *steps* in a fresh folder; before the second one a line of the program changes."""
    (folder / "wheels").mkdir(parents=True)
    small_wheel(folder / "wheels", "small")
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    (folder / "train.py").write_text(TRAIN)
    taken = []
    for number, step in enumerate(steps):
        if number == 1:
            (folder / "train.py").write_text(TRAIN.replace("sleep(0.1)", "sleep(0.11)"))
        taken.append(take(step, folder, types))
        print(f"  {STEPS[number]}: {taken[-1].seconds:.1f} s", file=sys.stderr)
    return taken


def shell(folder: Path, env: Mapping[str, str]) -> Callable[[str], str]:
    """Types commands on this machine; they may fail, as a look at a file that is not there yet."""

    def types(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    return types


def measure(place: Path) -> dict[str, list[Taken]]:
    """What each way takes."""
    found = {}
    (place / "site").mkdir()
    with machines.several_machines(place / "site") as site:
        for machine in (site.head, site.other):
            import_image(machine.env["HEADWAY_DOCKER_HOST"])
        folder = place / "headway"

        def at_the_laptop(command: str) -> str:
            return site.ada.types(f"cd {folder} && {command}").stdout

        print("headway", file=sys.stderr)
        found["headway"] = day(folder, with_headway(), at_the_laptop)
    (place / "cluster").mkdir()
    with slurm.slurm(place / "cluster", os.cpu_count() or 1) as cluster:
        print("Slurm", file=sys.stderr)
        folder = place / "slurm"
        found["Slurm"] = day(folder, with_slurm(), shell(folder, cluster.env))
    import_image(None)
    print("docker run", file=sys.stderr)
    folder = place / "docker"
    found["docker run"] = day(folder, with_docker(), shell(folder, os.environ))
    return found


def import_image(host: str | None) -> None:
    """Have Python with pip as `IMAGE` in the engine at *host*; None is this machine's own."""
    client = DockerClient(base_url=host) if host else DockerClient.from_env()
    name, _, tag = IMAGE.rpartition(":")
    path = ["ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"]
    root = python_root(("pip",))
    client.api.import_image_from_data(root, repository=name, tag=tag, changes=path)
    client.close()


def report(found: Mapping[str, list[Taken]]) -> None:
    """Print the table."""
    table = Table(title="commands typed / lines written / seconds")
    table.add_column("way")
    for step in (*STEPS, "all"):
        table.add_column(step, justify="right")
    for way, taken in found.items():
        whole = Taken(
            sum(each.commands for each in taken),
            sum(each.lines_written for each in taken),
            sum(each.seconds for each in taken),
        )
        cells = [f"{t.commands} / {t.lines_written} / {t.seconds:.1f}" for t in (*taken, whole)]
        table.add_row(way, *cells)
    Console().print(table)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write what was measured here")
    asked = parser.parse_args()
    if reason := machines.why_none() or slurm.why_none():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="hwd") as place:
        found = measure(Path(place))
    report(found)
    if asked.json:
        plain = {way: [asdict(each) for each in taken] for way, taken in found.items()}
        asked.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
