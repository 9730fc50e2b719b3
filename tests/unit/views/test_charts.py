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


def test_options_and_calibration_are_drawn_where_it_is_installed() -> None:
    charts = pytest.importorskip("headway.views.charts", exc_type=NotInstalled)
    way = {
        **dict.fromkeys(("runtime_s", "runtime_low_s", "runtime_high_s", "cost", "wait_s"), 60.0),
        **dict.fromkeys(("chosen", "pareto"), True),
    }
    one, four = (
        way | {"gpus": n, "gpu_type": "v100", "speed_up": speed}
        for n, speed in ((1, 1.0), (4, 3.1))
    )
    prior = way | {"gpus": 8, "gpu_type": "a100", "speed_up": None, "runtime_s": None}
    kind = {"kind": "known recipe", "runs": 12, "10%": 0.1, "50%": 0.4, "90%": 0.95}
    pictures = [charts.draw_options([one, four, prior]), charts.draw_options([prior])]
    pictures += [charts.draw_calibration([kind, kind | {"kind": "new batch"}])]
    widths = [int.from_bytes(each[16:20]) for each in pictures]
    assert all(each.startswith(b"\x89PNG") for each in pictures)
    assert widths[0] > 1.5 * widths[1], "speed-ups stand beside cost where any is known"
