"""What the tests of people's pages share."""

import re

PATIENCE_MS = 30_000
_TIMES = 4


def arrive(page: "Page", address: str) -> None:  # noqa: F821 - Playwright is imported late
    """Wait until the tab shows an address with *address* in it.

    Prefect's pages now and then stay white on a busy machine, when a part of their script does
    not come. A person loads such a page anew.
    """
    from playwright.sync_api import TimeoutError as Late

    for left in reversed(range(_TIMES)):
        try:
            page.wait_for_url(re.compile(address), timeout=PATIENCE_MS)
        except Late:
            if not left:
                raise
            page.reload()
        else:
            return
