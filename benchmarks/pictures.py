"""Take the pictures of docs/page.md: the page of a live site without an engine, in Chromium.

    python benchmarks/pictures.py [--into docs/pictures]

Each is of runs that ran just before: nothing in it is made up.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.terminal import LONG  # noqa: E402
from tests.browser.conftest import CHROMIUM, FLAGS  # noqa: E402
from tests.support.site import LiveSite, live_site, wait_for  # noqa: E402

WIDE, NARROW = 1400, 390


def main() -> None:
    """Bring a site up, let runs run, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "docs/pictures")
    into: Path = parser.parse_args().into
    into.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        folder.chmod(0o755)
        with live_site(folder / "site", "process", HEADWAY_NODE="node-a") as site:
            digits, sweep = runs(site, folder)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            views: dict[str, tuple[int, Literal["light", "dark"], str]] = {
                "site-light": (WIDE, "light", ""),
                "new-job-light": (WIDE, "light", f"new/{digits}"),
                "new-job-narrow-dark": (NARROW, "dark", f"new/{digits}"),
                "array-dark": (WIDE, "dark", f"arrays/{sweep}"),
                "run-narrow-light": (NARROW, "light", f"runs/{digits}"),
            }
            for picture, (width, scheme, view) in views.items():
                page = opened(browser, site, width, scheme, view)
                page.screenshot(path=into / f"{picture}.png")
                print(f"{into / picture}.png")
            browser.close()


def runs(site: LiveSite, folder: Path) -> tuple[str, str]:
    """Ids of a run and of an array that have ended; one run goes on, and one waits."""
    job = str(ROOT / "samples/digits/job.yaml")
    digits = site.json("submit", job)["run_id"]
    made = site.json("submit", job, "--set", "name=sweep", "--array", "seed=1..6")
    ended(site, digits)
    wait_for(
        lambda: site.json("show", made["array_id"])["ended_well"] == 6,
        lambda: f"{site.json('show', made['array_id'])}",
    )
    (folder / "long.yaml").write_text(LONG)
    long = site.json("submit", str(folder / "long.yaml"))["run_id"]
    wait_for(
        lambda: ((site.show(long)["progress"] or {}).get("iteration") or 0) > 8,
        lambda: str(site.show(long)),
    )
    site.json("submit", job, "--set", "name=next", "--set", "resources.cpus=1.5")
    wait_for(lambda: [each for each in site.json("queue") if each["reason"]], lambda: "no queue")
    return digits, made["array_id"]


def ended(site: LiveSite, run: str) -> None:
    """Wait until it has ended well."""
    wait_for(lambda: site.show(run)["state"] == "Completed", lambda: str(site.show(run)))


def opened(
    browser: Browser, site: LiveSite, width: int, scheme: Literal["light", "dark"], view: str
) -> Page:
    """A view as its operator sees it, once it is drawn."""
    at = site.at_the_gateway()
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=1
    )
    url, token = at["HEADWAY_URL"], at["HEADWAY_TOKEN"]
    context.add_cookies([{"name": "headway_token", "value": token, "url": url}])
    page = context.new_page()
    page.goto(f"{url}/headway#/{view}")
    page.locator("main h2").first.wait_for()
    if view.startswith("new/"):
        page.get_by_role("table", name="Ways to run it").wait_for()
    page.wait_for_timeout(1500)
    return page


if __name__ == "__main__":
    main()
