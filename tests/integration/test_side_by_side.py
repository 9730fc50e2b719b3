"""Programs of which nothing is known leave room for each other, and are known the second time."""

from pathlib import Path

import pytest

from headway.units import GIB, MIB
from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.prefect

HOLDS = "import time; held = b'x' * (512 << 20); print('up', flush=True); time.sleep({})"
PAUSE = "import time; time.sleep(2)"
KINDS = {
    "bytes": "held = b'x' * (150 << 20)",
    "numpy": "import numpy as np; a = np.random.rand(3000, 3000); print((a @ a).sum())",
    "trees": (
        "from sklearn.ensemble import RandomForestClassifier as Forest\n"
        "from sklearn.datasets import make_classification as made\n"
        "Forest(50).fit(*made(3000, 30, random_state=1))"
    ),
    "children": (
        "import multiprocessing as m\n"
        "def work(n): return len(b'x' * (n << 20))\n"
        "with m.Pool(2) as pool: print(sum(pool.map(work, [60, 80])))"
    ),
    "stepwise": "held = []\nfor _ in range(30): held.append(b'x' * (8 << 20))",
}


def test_two_programs_of_which_nothing_is_known_run_side_by_side(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """No memory and no CPUs are named; two CPUs are enough for both, and what both need grows."""
    runs = [
        process_site.submit(
            tmp_path, name=f"unknown-{n}", command=["python", "-c", HOLDS.format(60)], resources={}
        )
        for n in range(2)
    ]
    for run_id in runs:
        process_site.until(run_id, "Running")

    def hold_it() -> bool:
        (node,) = process_site.json("nodes")
        return set(runs) <= set(node["runs"]) and (node["host_runs_used_bytes"] or 0) > 1000 * MIB

    wait_for(hold_it, lambda: str(process_site.json("nodes")))
    views = [process_site.show(run_id) for run_id in runs]
    granted = [view["lease"]["host_memory_bytes"] for view in views]
    assert sum(granted) <= 6 * GIB, granted
    for run_id in runs:
        process_site.run("cancel", run_id)
        process_site.until(run_id, "Cancelled")


def test_the_second_run_of_any_kind_reserves_at_most_twice_its_peak(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """Also with another seed; run with -s it prints the table."""
    share: dict[str, list[float]] = {}
    for seed in range(2):
        runs = {
            kind: process_site.submit(
                tmp_path,
                name=f"kind-{kind}",
                command=["python", "-c", f"{program}\n{PAUSE}", f"--seed={seed}"],
                resources={"cpus": 0.3},
            )
            for kind, program in KINDS.items()
        }
        for kind, run_id in runs.items():
            view = process_site.until(run_id, "Completed", "Failed")
            assert view["state"] == "Completed", (kind, view["exit"])
            peak = view["measured"]["host_peak_bytes"]
            share.setdefault(kind, []).append(view["demand"]["host_memory_bytes"] / peak)
    print(f"\n{'kind':10} reserved ÷ peak, first and second run")
    for kind, (first, second) in share.items():
        print(f"{kind:10} {first:6.2f} {second:6.2f}")
    assert max(second for _, second in share.values()) <= 2.0
