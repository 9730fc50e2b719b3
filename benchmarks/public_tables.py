"""Public measurements as traces: brought, mapped, and how well each is told by all the others.

    PYTHONPATH=. python benchmarks/public_tables.py [--mirrors DIR] [--folder DIR] [--part source|…]

Brings what public_tables.yaml names by git address and commit into a folder outside the repository,
writes one CSV a source in the columns of `headway traces import`, and prints, for Gavel's and
timm's tables of tests/data besides, the errors where one source, one GPU type or chip, or some
networks are left out, and where three runs of the left-out source are known. Where the hosts are
not reachable, --mirrors is a folder of bare git directories, OWNER/NAME.git.
"""

import argparse
import fnmatch
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from ruamel.yaml import YAML
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut

from benchmarks.held_out import Rows
from benchmarks.public_readers import READERS
from headway.estimate.encode import Floats
from headway.estimate.evaluation.evaluate import HeldOut, said_of, score
from headway.estimate.features import Unit, measured_times
from headway.estimate.physics import Tables, shipped
from headway.estimate.regressors import Runtime, TraceFeatures
from headway.estimate.trace_files import parse
from headway.model.trace import Trace

TABLE = Path(__file__).with_name("public_tables.yaml")
HERE = {
    name: Path(__file__).parents[1] / "tests" / "data" / f"runtime-{name}.csv"
    for name in ("gavel", "timm")
}
PARTS = ("source", "own", "gpu_type", "chip", "network", "measured")
OWN = 3
"""Runs of the left-out source that are known in the part `own`."""
AT_ONCE = {"network": 5, "gpu_type": 7, "chip": 7}
"""Parts in which whole networks, types and chips are left out: one by one would take hours."""
FEWEST_ALIKE = 5
"""So many rows on both of two types, before a factor between them is looked for."""
_SAYS = {"source", "reader", "files", "address", "commit", "licence"}


def main() -> None:
    """Bring the tables and print the errors asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_folders(parser)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rows", type=int, default=30, help="at most, of each source at random")
    parser.add_argument("--seeds", type=int, default=1, help="draws of the part own")
    asked = parser.parse_args()
    measured = all_measured(asked.folder, asked.mirrors, asked.rows)
    for part in PARTS if asked.part is None else asked.part:
        print(f"\n### {part}\n\n| left out | rows | mean | median | ≤ 10 % | in 80 % |")
        print("|---|---|---|---|---|---|", flush=True)
        if part == "own":
            measured.own_known(asked.seeds)
        elif part == "measured":
            measured.by_another_type()
        else:
            measured.left_out(part)


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Where the tables come from, and where they are kept."""
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "headway-tables")


def all_measured(folder: Path, mirrors: Path | None, rows: int) -> "Measured":
    """So many rows of each source at most; says what was left out."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {**HERE, **brought(folder, mirrors)}
    return Measured.of({name: read(name, path) for name, path in files.items()}, shipped(), rows)


def brought(folder: Path, mirrors: Path | None) -> dict[str, Path]:
    """By source the CSV of its rows, written anew."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, told in YAML(typ="safe", pure=True).load(TABLE)["sources"].items():
        more = {key: value for key, value in told.items() if key not in _SAYS}
        rows = READERS[told["reader"]](files_of(told, folder, mirrors), **more)
        found.setdefault(told.get("source", name), []).extend(rows)
    for name, each in found.items():
        pd.DataFrame(each).to_csv(folder / f"{name}.csv", index=False)
    return {name: folder / f"{name}.csv" for name in found}


def files_of(told: dict[str, Any], folder: Path, mirrors: Path | None) -> Iterator[tuple[str, str]]:
    """Path and text of each file that is wanted and there: mirrors may lack the largest."""
    name = "/".join(told["address"].split("/")[-2:])
    bare = Path(mirrors or folder / "git") / f"{name}.git"
    git: list[str | Path] = ["git", "--git-dir", bare]
    if not bare.exists():
        subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
        wanted = ["fetch", "--quiet", "--depth", "1", told["address"], told["commit"]]
        subprocess.run([*git, *wanted], check=True)
    listed = subprocess.check_output([*git, "ls-tree", "-rz", told["commit"]], text=True)
    for line in filter(None, listed.split("\0")):
        about, _, path = line.partition("\t")
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in told["files"]):
            shown = subprocess.run(
                [*git, "cat-file", "blob", about.split()[2]], capture_output=True, check=False
            )
            if shown.returncode == 0:
                yield path, shown.stdout.decode(errors="replace")


def read(name: str, path: Path) -> tuple[Trace, ...]:
    """The traces of a file, as an import reads them; and in words what was left out."""
    got = parse(path.read_bytes(), path.name, name)
    print(f"{name}: {len(got.traces)} rows, {len(got.problems)} left out. {' '.join(got.notices)}")
    return got.traces


@dataclass(frozen=True)
class Measured:
    """Times of iterations on GPUs that the tables know."""

    X: pd.DataFrame
    """As models see them, with the facts of the tables."""
    seconds: Floats
    source: pd.Series
    """Of each row, as its index is that of `X`."""

    @classmethod
    def of(cls, by_source: Mapping[str, Sequence[Trace]], tables: Tables, most: int) -> "Measured":
        """At most so many rows of each of *by_source* that tell of an iteration."""
        told = []
        for name, traces in by_source.items():
            known = [
                t
                for t in traces
                if Unit.ITERATION in measured_times(t) and tables.find_gpu(t.gpu_type)[1]
            ]
            some = np.random.default_rng(0).permutation(len(known))[:most]
            told += [(name, known[at]) for at in sorted(some)]
        rows = Rows.of([replace(t, recipe=f"{name} {t.network}") for name, t in told])
        known_of = TraceFeatures(tables).transform(rows.X)
        source = pd.Series([name for name, _ in told], index=known_of.index, name="source")
        return cls(known_of, rows.seconds, source)

    def groups(self, by: str) -> pd.Series:
        """Of each row its value of *by*."""
        columns = {"source": self.source, "chip": self.X["gpu_type"].str.split("-").str[0]}
        return columns[by] if by in columns else self.X[by]

    def said(self, by: str) -> HeldOut:
        """What is said of each row by those of other values of *by*."""
        whole = GroupKFold(AT_ONCE[by]) if by in AT_ONCE else LeaveOneGroupOut()
        splits = list(whole.split(self.X, groups=self.groups(by)))
        return HeldOut(self.seconds, said_of(Runtime(), self.X, self.seconds, splits))

    def left_out(self, by: str) -> None:
        """A line for each value of *by* (of each source where that is its networks), and of all."""
        groups, said_s = self.groups(by), self.said(by).said_s
        each = self.source if by == "network" else groups
        for value in sorted(each.unique()):
            self._line(value, said_s, np.flatnonzero(each == value))
        self._line("all", said_s, np.arange(len(groups)))
        if by in {"gpu_type", "chip"}:
            types = groups.groupby(self.X["recipe"]).transform("nunique")
            self._line("recipes that ran on another one", said_s, np.flatnonzero(types > 1))

    def own_known(self, seeds: int) -> HeldOut:
        """A line for each source but for `OWN` of its rows, drawn for each seed; and of all."""
        every: list[HeldOut] = []
        for name in sorted(self.source.unique()):
            for seed in range(seeds):
                mine = np.flatnonzero(self.source == name)
                own = np.random.default_rng(seed).permutation(mine)
                seen = np.append(np.flatnonzero(self.source != name), own[:OWN])
                held = own[OWN:]
                said_s = said_of(Runtime(), self.X, self.seconds, [(seen, held)])[held]
                every.append(HeldOut(self.seconds[held], said_s))
            _print_line(name, _together(every[-seeds:]))
        _print_line("all", _together(every))
        return _together(every)

    def by_another_type(self) -> None:
        """Of each source how far the very same work, measured on another type, tells a time.

        Times the factor between the two types that is best for all such rows: what no table of
        GPUs can better, since it was fitted to the answer.
        """
        told = [c for c in map(str, self.X) if c.startswith("gpu_")]
        same = self.X.drop(columns=[*told, "team", "iterations"])
        logs = pd.Series(np.log(self.seconds), index=self.X.index)
        types = [each.fillna(-1) for _, each in same.items()]
        table = logs.groupby([*types, self.source, self.X["gpu_type"]]).mean().unstack()
        for name, rows in table.groupby(level="source"):
            pairs = [(rows[b] - rows[a]).dropna() for a in rows for b in rows if a != b]
            apart = [np.exp(p - p.median()) for p in pairs if len(p) >= FEWEST_ALIKE]
            if apart:
                error = np.abs(np.concatenate(apart) - 1)
                cells = (error.mean(), np.median(error), (error <= 0.1).mean())
                print(
                    f"| {name} | {len(error)} | "
                    + " | ".join(f"{100 * c:.1f}" for c in cells)
                    + " | |"
                )

    def _line(self, value: str, said_s: Floats, at: NDArray[np.intp]) -> None:
        _print_line(value, HeldOut(self.seconds[at], said_s[at]))


def _together(held: Sequence[HeldOut]) -> HeldOut:
    measured_s = np.concatenate([each.measured_s for each in held])
    return HeldOut(measured_s, np.concatenate([each.said_s for each in held]))


def _print_line(value: str, held: HeldOut) -> None:
    got = score(held)
    shares = (got.mean_relative_error, got.median_relative_error, got.within_10_frac)
    cells = " | ".join(f"{100 * share:.1f}" for share in (*shares, got.coverage_80_frac))
    print(f"| {value} | {len(held.measured_s)} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
