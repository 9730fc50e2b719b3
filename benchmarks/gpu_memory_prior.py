"""GPU memory said before the first run, against measurements and against the literature's tools.

    PYTHONPATH=. python benchmarks/gpu_memory_prior.py

Two tables. The first has image networks that the authors of xMem and GPUMemNet measured, with what
their tools and those that they compare with said of the very same runs; networks count alike, each
by the median of its runs. xMem's images are 86 pixels wide, so activations are scaled by the area.
The second has networks that timm's benchmark trained at amp with the largest batch that went into
24 GB: the next larger batch did not, which bounds the memory from both sides.
"""

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

from headway.estimate.features import Configuration
from headway.estimate.gpu_prior import gpu_memory_guess
from headway.estimate.physics import Tables, shipped
from headway.units import GIB

DATA = Path(__file__).parents[1] / "tests" / "data"
TOOLS = ("DNNMem", "SchedTune", "xMem", "GPUMemNet", "FakeTensor", "Horus")
USABLE_BYTES = 23.7 * GIB
BATCHES = (512, 384, 256, 192, 128, 96, 64)
"""That timm's benchmark tries, from the largest."""


def main() -> None:
    """Print both tables."""
    published()
    at_the_limit()


def rows(name: str) -> list[dict[str, str]]:
    """Those of a file of the tests."""
    return list(csv.DictReader((DATA / name).read_text().splitlines()))


def published() -> None:
    """Errors of each tool on the runs that it was scored on, ours on the same ones."""
    errors: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    held = within = 0
    every = rows("gpu-memory-published.csv")
    for row in every:
        measured, network = int(row["measured_bytes"]), row["network"]
        guess = gpu_memory_guess(
            Configuration(
                network=network,
                gpu_type="gpu",
                batch_size=int(row["batch_size"]),
                framework="pytorch",
            ),
            at_side(network, row["side"]),
        )
        if guess is None:
            raise SystemExit(f"nothing is known of {network}")
        held += measured <= guess.upper_bytes
        within += guess.low_bytes <= measured <= guess.high_bytes
        said = {tool: float(row[tool]) for tool in TOOLS if row[tool]}
        for tool, number in {**said, "headway": guess.median_bytes}.items():
            errors[row["source"], tool][network].append(abs(number / measured - 1))
    print("| runs of | tool | networks | median error % | worst network % |\n|---|---|---|---|---|")
    for (source, tool), of_networks in sorted(errors.items()):
        each = [100 * median(them) for them in of_networks.values()]
        print(f"| {source} | {tool} | {len(each)} | {median(each):.0f} | {max(each):.0f} |")
    print(f"\nmeasured below what is reserved: {held} of {len(every)}; in 80 %: {within}")


def at_side(network: str, side: str) -> Tables:
    """The tables with the activations of *network* as for images of that *side*."""
    tables = shipped()
    facts = tables.network_facts(network)
    if not side or facts is None or facts.activations is None:
        return tables
    activations = facts.activations * (int(side) / 224) ** 2
    smaller = facts.model_copy(update={"activations": activations})
    return replace(tables, networks={network.replace("-", ""): smaller})


def at_the_limit() -> None:
    """Of timm's networks: their memory lies between two bounds; where does the guess lie?"""
    ratios, held, within, count = [], 0, 0, 0
    for row in rows("runtime-timm.csv"):
        batch = int(row["batch_size"])
        larger = [each for each in BATCHES if each > batch]
        guess = gpu_memory_guess(
            Configuration(network=row["network"], gpu_type="rtx3090", batch_size=batch,
                          precision="amp", framework="pytorch"),
            shipped(),
        )  # fmt: skip
        if not larger or guess is None:
            continue
        least = USABLE_BYTES * batch / larger[-1]
        count += 1
        held += guess.upper_bytes >= least
        within += guess.low_bytes <= USABLE_BYTES and guess.high_bytes >= least
        ratios.append(guess.median_bytes / math.sqrt(least * USABLE_BYTES))
    off = sorted(abs(each - 1) for each in ratios)
    print(
        f"\n{count} networks of timm at their largest batch: median error {100 * median(off):.0f} %"
        f", 95 % within {100 * off[int(0.95 * count)]:.0f} %; at least the lower bound is reserved"
        f" for {held}, 80 % intervals meet the bounds of {within}"
    )


if __name__ == "__main__":
    main()
