"""Public programs as they are on a real site: each three times, and what was said of them.

    python benchmarks/zoo.py [NAME …] [--half seen] [--mirrors DIR] [--folder DIR] [--again FILE]

Brings what benchmarks/zoo_programs.yaml names by git address and commit into a folder outside the
repository, makes the small data (zoo_data.py), and submits each program by `headway run`, three
times with other options, to the site that HEADWAY_HOME or `headway login` leads to. Where its
hosts are not reachable, --mirrors (or HEADWAY_ZOO_MIRRORS) is a folder of bare git directories,
OWNER/NAME.git. The site has to reach an index of packages (docs/operating.md).

What was said is sampled every half second while a run goes on and kept as JSON lines in
FOLDER/said.jsonl, from which `--again` prints the table without a run, of each run the newest.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ruamel.yaml import YAML  # noqa: E402

from benchmarks.zoo_data import MAKERS  # noqa: E402
from headway import Client  # noqa: E402
from headway.errors import GatewayRefused, SiteUnreachable, may_come_back  # noqa: E402
from headway.units import format_size  # noqa: E402

TABLE = Path(__file__).with_name("zoo_programs.yaml")
REQUIREMENTS = "zoo-requirements.txt"
PARTS = (0.1, 0.3, 0.5, 0.8)
"""Of a run's own time, at which what was left is compared."""
LOOK_EVERY_S, LONGEST_S = 0.5, 900.0
ENDED = ("Completed", "Failed", "Cancelled", "Crashed")


@dataclass
class Said:
    """What one run was told to its owner, and what it did."""

    program: str
    framework: str
    half: str
    number: int
    options: list[str]
    state: str = ""
    reason: str = ""
    attempts: int = 0
    runtime_s: float | None = None
    predicted_s: float | None = None
    known: bool = False
    """Whether the prediction rests on anything but the prior."""
    reserved_bytes: int | None = None
    peak_bytes: int | None = None
    began_at: float | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    """Samples: `at`, `remaining_s`, `low_s`, `high_s`, `iteration`, `epoch`, `total`."""

    def at(self, part: float) -> tuple[float | None, bool | None]:
        """What was said to be left over the truth, and whether that lay within the bounds said.

        None where nothing was said, or no bounds.
        """
        if not (self.runtime_s and self.began_at):
            return None, None
        moment = self.began_at + part * self.runtime_s
        before = [each for each in self.seen if each["at"] <= moment]
        if not before:
            return None, None
        last, said_s = before[-1], before[-1]["remaining_s"]
        left = self.began_at + self.runtime_s - last["at"]
        inside = None if last["high_s"] is None else last["low_s"] <= left <= last["high_s"]
        return None if said_s is None else said_s / max(left, 1e-3), inside


def main() -> int:
    """Run the programs, or read what was said; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="programs; all when left out")
    parser.add_argument("--half", choices=["seen", "unseen"])
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "headway-zoo")
    parser.add_argument("--mirrors", type=Path, default=os.environ.get("HEADWAY_ZOO_MIRRORS"))
    parser.add_argument("--again", type=Path, help="print the table of this said.jsonl")
    asked = parser.parse_args()
    table = YAML(typ="safe", pure=True).load(TABLE)
    if asked.again:
        lines = asked.again.read_text().splitlines()
        told = [Said(**json.loads(line)) for line in lines]
        newest = {(each.program, each.number): each for each in told}
        print_table(list(newest.values()), asked.half)
        return 0
    chosen = [
        each
        for each in table["programs"]
        if each["name"] in (asked.names or [each["name"]]) and asked.half in (None, each["half"])
    ]
    asked.folder.mkdir(parents=True, exist_ok=True)
    said_now: list[Said] = []
    with Client() as client, (asked.folder / "said.jsonl").open("a") as file:
        for program in chosen:
            folder = brought(program, table, asked.folder, asked.mirrors)
            for said in tried(client, program, folder):
                said_now.append(said)
                file.write(json.dumps(asdict(said)) + "\n")
                file.flush()
                print(f"{said.program} {said.number}: {said.state} {said.reason}", file=sys.stderr)
    print_table(said_now, asked.half)
    return 0


def brought(
    program: dict[str, Any], table: dict[str, Any], folder: Path, mirrors: Path | None
) -> Path:
    """The program's own folder, unchanged but for its data and a file of requirements."""
    source, place = table["sources"][program["source"]], folder / program["name"]
    if not place.exists():
        archive = _git(source, folder / "git", mirrors, program.get("paths", []))
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
        archive.unlink()
    own = place / program["folder"]
    if maker := program.get("data"):
        name, first, *rest = maker
        MAKERS[name](own / first, *(own / it if name == "language_model" else it for it in rest))
    (own / REQUIREMENTS).write_text(
        "\n".join(table["requirements"][program["requirements"]]) + "\n"
    )
    return own


def _git(source: dict[str, str], kept: Path, mirrors: Path | None, paths: Sequence[str]) -> Path:
    """A tar of *paths* at the commit, from a mirror or the source's own host."""
    address, commit = source["address"], source["commit"]
    name = "/".join(address.split("/")[-2:])
    bare = Path(mirrors) / f"{name}.git" if mirrors else kept / f"{name}.git"
    if not bare.exists():
        subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
        fetch: list[str | Path] = [
            "git",
            "--git-dir",
            bare,
            "fetch",
            "--quiet",
            "--depth",
            "1",
            address,
            commit,
        ]
        subprocess.run(fetch, check=True)
    kept.mkdir(parents=True, exist_ok=True)
    archive = kept / "archive.tar"
    words: list[str | Path] = [
        "git",
        "--git-dir",
        bare,
        "archive",
        "--output",
        archive,
        commit,
        "--",
        *paths,
    ]
    subprocess.run(words, check=True)
    return archive


def tried(client: Client, program: dict[str, Any], folder: Path) -> Iterator[Said]:
    """Submit the program three times, one after the other, and watch each to its end."""
    for number, others in enumerate(program["runs"], start=1):
        options = [*program.get("options", []), *others]
        said = Said(program["name"], program["framework"], program["half"], number, options)
        words = [sys.executable, "-m", "headway.cli.main", "run", program["program"]]
        words += ["--workdir", folder, "--requirements", REQUIREMENTS, "--name", program["name"]]
        words += [f"--set=env.{name}={value}" for name, value in program.get("env", {}).items()]
        handed = subprocess.run(
            [*words, "--detach", "--json", "--", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if handed.returncode:
            said.state, said.reason = "Refused", handed.stderr.strip()[-300:]
        else:
            _watch(client, json.loads(handed.stdout)["run_id"], said)
        yield said


def _asked(client: Client, run_id: str) -> dict[str, Any]:
    """The run as it is, once the gateway answers: what may come back is waited for."""
    while True:
        try:
            return client.run(run_id)
        except (SiteUnreachable, GatewayRefused) as error:
            if not may_come_back(error):
                raise
            time.sleep(LOOK_EVERY_S)


def _watch(client: Client, run_id: str, said: Said) -> None:
    until = time.monotonic() + LONGEST_S
    while (run := _asked(client, run_id))["state"] not in ENDED:
        progress = run.get("progress") or {}
        bounds = [run.get(f"remaining_{end}_s") for end in ("low", "high")]
        low_s, high_s = bounds if None not in bounds else (None, None)
        counts = {name: progress.get(name) for name in ("iteration", "epoch", "total")}
        left = {"remaining_s": run["remaining_s"], "low_s": low_s, "high_s": high_s}
        said.seen.append({"at": time.time(), **left, **counts})
        if time.monotonic() > until:
            client.cancel(run_id)
            until = float("inf")
        time.sleep(LOOK_EVERY_S)
    last, measured = run["attempts"][-1:], run.get("measured") or {}
    said.state, said.reason = run["state"], run["reason"] or ""
    said.attempts, said.runtime_s = len(run["attempts"]), measured.get("runtime_s")
    said.peak_bytes = measured.get("host_peak_bytes")
    said.reserved_bytes = (run.get("demand") or {}).get("host_memory_bytes")
    predicted = run.get("predicted") or {}
    said.predicted_s, said.known = predicted.get("runtime_s"), predicted.get("basis") != "prior"
    if last and last[0]["started_at"]:
        # An attempt's end is no program's: its files are looked through between the two.
        steps = [each for each in run["steps"] if each["attempt"] == run["attempt"]]
        before = takewhile(lambda step: step["name"] != "train", steps)
        took_s = sum(step["seconds"] or 0.0 for step in before)
        said.began_at = datetime.fromisoformat(last[0]["started_at"]).timestamp() + took_s


def print_table(told: list[Said], half: str | None) -> None:
    """One line for each program; then the figures that the targets are about, for each half."""
    head = ["program", "framework", "first try", "progress"]
    head += [f"left at {part:.0%}" for part in PARTS]
    head += ["reserved / peak", "2nd: said / took", "3rd: said / took"]
    for kind in ("seen", "unseen") if half is None else (half,):
        of_half = [each for each in told if each.half == kind]
        if not of_half:
            continue
        print(f"\n**{kind}**\n\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
        for name in dict.fromkeys(each.program for each in of_half):
            runs = sorted((it for it in of_half if it.program == name), key=lambda it: it.number)
            print(f"| {' | '.join(_line(runs))} |")
        print("\n" + "\n".join(_figures(of_half)))


def _line(runs: list[Said]) -> list[str]:
    first = runs[0]
    line = [first.program, first.framework, "yes" if _first_try(first) else f"no: {first.state}"]
    read = any(each["iteration"] is not None or each["epoch"] is not None for each in first.seen)
    line.append("read" if read else "none")
    line += [" ".join(_ratio(each.at(part)) for each in runs) for part in PARTS]
    sizes = [(each.reserved_bytes, each.peak_bytes) for each in runs]
    line.append(" ".join(f"{format_size(a)}/{format_size(b)}" for a, b in sizes if a and b))
    for later in (*runs[1:3], *[None] * (3 - len(runs))):
        known = later is not None and later.runtime_s and later.predicted_s
        line.append(f"{later.predicted_s:.0f}/{later.runtime_s:.0f} s" if known and later else "–")
    return line


def _first_try(said: Said) -> bool:
    return said.state == "Completed" and said.attempts == 1


def _ratio(said: tuple[float | None, bool | None]) -> str:
    ratio, inside = said
    mark = {None: "", True: "✓", False: "✗"}[inside]
    return f"{'–' if ratio is None else f'{ratio:.2f}'}{mark}"


def _figures(told: list[Said]) -> Iterator[str]:
    firsts, seconds, thirds = ([it for it in told if it.number == n] for n in (1, 2, 3))
    yield f"- ran at first try: {sum(map(_first_try, firsts))} of {len(firsts)}"
    half_way = [ratio for each in told if (ratio := each.at(0.5)[0]) is not None]
    near = sum(1 / 1.5 <= ratio <= 1.5 for ratio in half_way)
    ended = sum(each.state == "Completed" for each in told)
    yield f"- left at half-way: said of {len(half_way)} of {ended} runs, {near} within 1.5 ×"
    all_said = [each.at(part) for each in told for part in PARTS]
    short = sum(
        ratio is not None and ratio < 0.5 and inside is not True for ratio, inside in all_said
    )
    bounded = [inside for _, inside in all_said if inside is not None]
    yield f"- told shorter than half its truth, and not within its interval: {short} times"
    yield f"- truth within the interval: {sum(bounded)} of {len(bounded)}"
    sizes = [
        it.reserved_bytes / it.peak_bytes for it in seconds if it.reserved_bytes and it.peak_bytes
    ]
    within = sum(size <= 2 for size in sizes)
    yield f"- reserved at most 2 × peak at the second run: {within} of {len(sizes)}"
    apart = [
        abs(it.predicted_s / it.runtime_s - 1) for it in thirds if it.predicted_s and it.runtime_s
    ]
    yield (
        f"- third run's time: median {median(apart):.0%} off, of {len(apart)}"
        if apart
        else "- no third run"
    )


if __name__ == "__main__":
    sys.exit(main())
