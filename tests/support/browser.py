"""What the tests of people's pages share."""

import re
from collections.abc import Callable

PATIENCE_MS = 30_000
_TIMES = 4


def arrive(page: "Page", address: str) -> None:  # noqa: F821 - Playwright is imported late
    """Wait until the tab shows an address with *address* in it.

    Prefect's pages now and then stay white on a busy machine, when a part of their script does
    not come.
    """
    patiently(page, lambda: page.wait_for_url(re.compile(address), timeout=PATIENCE_MS))


def see(page: "Page", text: str) -> None:  # noqa: F821
    """Wait until a line of a run's log that fits *text* is on the run's page.

    Prefect's page asks for no more lines once it has shown that the run ended, and the last ones
    come a moment later.
    """
    line = page.get_by_text(re.compile(text)).first
    patiently(page, lambda: line.wait_for(timeout=PATIENCE_MS))


def patiently(page: "Page", wait: Callable[[], None]) -> None:  # noqa: F821
    """Wait as a person does, who loads a page anew that does not show what is expected."""
    from playwright.sync_api import TimeoutError as Late

    for left in reversed(range(_TIMES)):
        try:
            wait()
        except Late:
            if not left:
                raise
            page.reload()
        else:
            return
