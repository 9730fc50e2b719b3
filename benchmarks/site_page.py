"""How long the page of a site takes to show with 1,000 runs, beside the same with ten.

    python benchmarks/site_page.py [--times 10] [--runs 1000]

Gateway and browser are on this machine, and no Prefect answers. Of the runs,
nine in ten have ended and the others wait. Beside them there is an array of as many members, all of
which have ended and have 50 values of a metric. Prints milliseconds from the click to the drawn
view, and their ratio; both sites are asked in turn.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402

from headway.model.array import Array  # noqa: E402
from headway.model.run import Exit, ExitKind, Measurement  # noqa: E402
from headway.site import Site  # noqa: E402
from tests.browser.conftest import CHROMIUM, FLAGS  # noqa: E402
from tests.support.api import MEMBER, bearer, serving, site_in  # noqa: E402
from tests.support.fence import fence_of, release  # noqa: E402
from tests.support.lived_in import begin, populate  # noqa: E402

DRAWN = "() => document.querySelector('main h2') && performance.now()"


def main() -> None:
    """Load both pages in turn; a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    with ExitStack() as stack:
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        sites = {}
        for count in (10, asked.runs):
            site = site_in(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            fill(site, count)
            fill_array(site, count)
            token = bearer(site, "me", "t", MEMBER)["Authorization"].removeprefix("Bearer ")
            sites[count] = (stack.enter_context(serving(site)), token)
        print("| view | runs | median ms | slowest ms | ratio |\n|---|---|---|---|---|")
        for view in ("#/", "#/runs", "#/arrays/sweep"):
            taken: dict[int, list[float]] = {count: [] for count in sites}
            for _ in range(asked.times + 1):
                for count, (url, token) in sites.items():
                    taken[count].append(loaded(browser, url, token, view))
            base = statistics.median(taken[10][1:])
            for count, all_ms in taken.items():
                ms = all_ms[1:]  # the first is a cold gateway
                middle = statistics.median(ms)
                print(f"| {view} | {count} | {middle:.0f} | {max(ms):.0f} | {middle / base:.2f} |")
        browser.close()


def fill(site: Site, count: int) -> None:
    """So many runs, beside those that every site here has."""
    populate(site.ledger)
    job = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
    for at in range(count):
        run_id = f"00000000-0000-4000-8000-{at:012d}"
        site.ledger.runs.enqueue(
            run_id, job, name=f"sweep-{at}", owner="me", team="t", pool="gpu", priority=0,
            submitted_at=site.ledger.now(),
        )  # fmt: skip
        if at % 10:
            ended = Exit(ExitKind.CANCELLED, None, "cancelled")
            site.ledger.runs.finish(fence_of(site.ledger, run_id), ended, Measurement())


def fill_array(site: Site, count: int) -> None:
    """An array with so many members that have ended well."""
    ledger, lr = site.ledger, {"lr": tuple(at / 1000 for at in range(1, count + 1))}
    job = {"name": "sweep", "image": "trainer:1", "command": ["train", "{lr}"]}
    made = ledger.arrays.add(
        job, Array(lr), name="sweep", owner="me", team="t", pool="gpu", queue="default",
        key=None, submitted_at=ledger.now(),
    )  # fmt: skip
    for index in range(1, count + 1):
        run_id = f"member-{index}"
        ledger.arrays.join(made.array_id, index, run_id)
        begin(ledger, run_id, [{"loss": index / n} for n in range(1, 51)])
        ended = Measurement(60.0, 1 << 30)
        ledger.runs.finish(fence_of(ledger, run_id), Exit(ExitKind.OK, 0, "ended well"), ended)
        release(ledger, run_id)


def loaded(browser: Any, url: str, token: str, view: str) -> float:
    """Milliseconds until *view* was drawn, in a browser that knows nothing of the site yet."""
    context = browser.new_context()
    context.add_cookies([{"name": "headway_token", "value": token, "url": url}])
    tab = context.new_page()
    tab.goto(f"{url}/headway{view}")
    taken = float(tab.wait_for_function(DRAWN).json_value())
    context.close()
    return taken


if __name__ == "__main__":
    main()
