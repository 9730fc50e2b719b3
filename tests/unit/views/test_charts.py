"""Pictures are drawn where what draws them is installed."""

import importlib
import sys

import pytest

from headway.errors import NotInstalled


def test_without_matplotlib_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "headway.views.charts", raising=False)
    with pytest.raises(NotInstalled, match=r"^pictures need matplotlib.*'headway\[plots\]'$"):
        importlib.import_module("headway.views.charts")
