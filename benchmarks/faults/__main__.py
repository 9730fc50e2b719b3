"""Every row of the table of targets, one command after the other: `make faults`.

    python benchmarks/faults [--full] [WORD …]     (only rows with one of the words)

Small sizes by default, some minutes in all; --full takes hours.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Row(NamedTuple):
    """One figure: the command that measures it, small and in full."""

    name: str
    script: str
    small: tuple[str, ...]
    full: tuple[str, ...]


ROWS = (
    Row("burst", "../burst.py", ("--jobs", "20", "--reference", "0"), ("--jobs", "100")),
    Row("kills", "kills.py", ("--kills", "10", "--batch", "10"), ("--kills", "300")),
    Row("storm", "kills.py", ("--storm", "--kills", "10"), ("--storm", "--kills", "60")),
    Row("ledger kills", "ledger_kills.py", ("--kills", "200"), ("--kills", "10000")),
    Row("lost answers", "lost_answers.py", ("--jobs", "50"), ("--jobs", "5000")),
    Row("lost answers stack", "lost_answers.py", ("--stack", "--jobs", "10"), ("--stack",)),
    Row("ways of the protocol", "ways.py", ("--ways", "100"), ("--ways", "5000")),
    Row("races", "../races.py", ("--rounds", "200"), ("--rounds", "10000")),
    Row("frozen nodes", "freeze_and_wake.py", ("--times", "2"), ("--times", "50")),
    Row("cancel", "cancel_after_outage.py", ("--times", "1", "--away", "10"), ()),
    Row("short jobs", "short_jobs_killed.py", ("--jobs", "20", "--every", "10"), ()),
    Row("peace", "short_jobs_killed.py", ("--jobs", "20", "--every", "0"), ("--every", "0")),
)


def main() -> int:
    """Run the rows that were asked for; print the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only rows whose name has one of these")
    parser.add_argument("--full", action="store_true", help="the sizes of the targets: hours")
    asked = parser.parse_args()
    table, bad = ["| figure | target | measured |", "|---|---|---|"], 0
    for row in ROWS:
        if asked.words and not any(word in row.name for word in asked.words):
            continue
        begun = time.monotonic()
        options = row.full if asked.full else row.small
        print(f"\n== {row.name}: {row.script} {' '.join(options)}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / row.script), *options],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        table += [line for line in done.stdout.splitlines() if line.startswith("|")]
        took_s = time.monotonic() - begun
        if done.returncode:
            bad = 1
            table.append(f"| {row.name} | – | **failed** after {took_s:.0f} s |")
        print(f"\n{took_s:.0f} s", file=sys.stderr)
    print("\n".join(table))
    return bad


if __name__ == "__main__":
    sys.exit(main())
