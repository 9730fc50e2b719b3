"""Bad jobs at the door: is each refused, by a line about its field, and how soon?

    python benchmarks/bad_specs.py [--generated 20000] [--good 1000] [--seed 1]

Every job goes through what a client reads and through the gateway's own application, in this
process: those of `tests/support/bad_values.py` and its like, generated ones with one thing wrong,
and good ones, of which none may be refused. Fails where one comes in or a line names another
field. The times are of the processor, so that what else the machine does counts little; the
wall-clock times are printed beside them.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.bad_specs import Spec, Verdict, judged, listed, small_site  # noqa: E402
from tests.support.spec_mutations import bad_specs, good_jobs  # noqa: E402


def main() -> None:
    """Judge the listed, the generated and the good ones; a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", type=int, default=20_000)
    parser.add_argument("--good", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    good = itertools.islice(good_jobs(asked.seed + 1), asked.good)
    kinds = {
        "listed": listed(),
        "generated": list(bad_specs(asked.seed, asked.generated)),
        "good": [Spec(json.dumps(job), "") for job in good],
    }
    print(f"seed {asked.seed}; milliseconds: processor p99, slowest; wall clock p99, slowest")
    print("| jobs | number | refused | naming the field | client | gateway |")
    print("|---|---|---|---|---|---|")
    failed = False
    for name, specs in kinds.items():
        with tempfile.TemporaryDirectory() as folder, small_site(Path(folder)) as site:
            verdicts = judged(site, specs)
        failed |= _row(name, specs, verdicts)
    sys.exit(failed)


def _row(name: str, specs: Sequence[Spec], verdicts: Sequence[Verdict]) -> bool:
    """Print what became of *specs*; whether that is not what should have."""
    refused = [bool(verdict.gateway) for verdict in verdicts]
    wrong = [
        (spec, verdict)
        for spec, verdict in zip(specs, verdicts, strict=True)
        if (not verdict.names(spec.field) if spec.field else verdict.gateway or verdict.client)
    ]
    client = _times([verdict.client_cpu_s for verdict in verdicts])
    gateway = _times([verdict.gateway_cpu_s for verdict in verdicts])
    wall = _times([verdict.gateway_s for verdict in verdicts])
    named = len(specs) - len(wrong) if name != "good" else "–"
    print(f"| {name} | {len(specs)} | {sum(refused)} | {named} | {client} | {gateway}; {wall} |")
    for spec, verdict in wrong[:20]:
        print(f"  {spec.field or 'good'}: {spec.text[:300]!r} {verdict.client} | {verdict.gateway}")
    return bool(wrong)


def _times(times_s: Sequence[float]) -> str:
    return f"{statistics.quantiles(times_s, n=100)[-1] * 1e3:.1f}, {max(times_s) * 1e3:.1f}"


if __name__ == "__main__":
    main()
