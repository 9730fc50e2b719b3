"""The picture of a run is drawn whatever is known, and stays small."""

import importlib
import sys

import pytest

from headway.errors import NotInstalled
from headway.model.progress import ProgressPoint
from headway.units import GIB
from headway.views.charts import draw_run, rising

POINTS = [
    ProgressPoint(0.1 * n, iteration=n, total=3000, metrics={"loss $_{": 1 / n, "\u202e": n})
    for n in range(1, 3001)
]


@pytest.mark.parametrize(
    ("points", "memory", "limit_bytes"),
    [
        ([], [], None),
        (POINTS[:1], [(0.0, GIB)], GIB),
        (POINTS, [(float(t), GIB) for t in range(3000)], 2 * GIB),
    ],
)
def test_a_picture_is_a_small_png(points, memory, limit_bytes) -> None:
    png = draw_run(points, memory, limit_bytes)
    assert png.startswith(b"\x89PNG")
    assert len(png) < 60_000


def test_a_restart_counts_from_its_own_beginning() -> None:
    again = [ProgressPoint(float(n), iteration=i) for n, i in enumerate([50, 60, 70, 1, 2, 2, 3])]
    t_s, done, unit = rising(again)
    assert (list(t_s), list(done), unit) == ([3.0, 4.0, 6.0], [1.0, 2.0, 3.0], "iteration")


def test_epochs_do_where_there_is_nothing_finer() -> None:
    assert rising([ProgressPoint(1.0, epoch=1.0), ProgressPoint(2.0, epoch=2.0)])[2] == "epoch"


def test_without_matplotlib_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    monkeypatch.delitem(sys.modules, "headway.views.charts")
    with pytest.raises(NotInstalled, match=r"^pictures need matplotlib.*'headway\[plots\]'$"):
        importlib.import_module("headway.views.charts")
