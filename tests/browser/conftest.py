"""A browser for the tests of what people see."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # no longer: its loop would be in the way of other tests' own
def browser() -> Iterator["Browser"]:  # noqa: F821 - Playwright is imported late
    """A real Chromium, which a file's tests share."""
    if not Path(CHROMIUM).exists() and shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a machine may be busy
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or CHROMIUM, args=FLAGS
        )
        yield started
        started.close()


@pytest.fixture
def page(browser: "Browser", tmp_path: Path) -> Iterator["Page"]:  # noqa: F821
    """A tab of a person whom no page knows yet."""
    with browser.new_context(viewport={"width": 1400, "height": 1000}) as person:
        tab = person.new_page()
        tab.set_default_timeout(120_000)
        yield tab
        tab.screenshot(path=tmp_path / "last.png")
