"""What an array's line says of its end."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from headway.estimate.starts import FAR_S
from headway.views.array_document import _expected_end

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_an_array_that_would_outlast_all_dates_has_a_line_all_the_same() -> None:
    """Else the list of runs would break for all who see it."""
    arrays = SimpleNamespace(members=lambda *_: [], lasted_s=lambda *_: [2 * 365 * 86_400.0])
    site: Any = SimpleNamespace(ledger=SimpleNamespace(now=lambda: NOW, arrays=arrays))
    array: Any = SimpleNamespace(array_id="a")
    end = _expected_end(site, array, 10_000)
    assert end is not None
    assert (end - NOW).total_seconds() == FAR_S
