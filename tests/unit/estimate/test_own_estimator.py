"""The example of docs/development/estimates.md, as it stands there."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

import headway
from headway.client.frames import TRACES, frame
from headway.estimate.regressors import TraceFeatures
from headway.estimate.trace_files import parse

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/development/estimates.md"
GAVEL = ROOT / "tests/data/runtime-gavel.csv"


def example():
    (found,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return found


def test_an_estimator_of_ones_own_is_scored_beside_headways(monkeypatch, capsys):
    assert example().count("\n") <= 30
    few = parse(GAVEL.read_bytes(), GAVEL.name, "gavel").traces[::6]
    monkeypatch.setattr(headway, "traces", lambda: frame([asdict(t) for t in few], TRACES))
    names = {"__name__": "__main__"}
    exec(compile(example(), str(PAGE), "exec"), names)
    assert re.fullmatch(
        r"trees: [\d.]+% off in the mean\nheadway's own: [\d.]+% off in the mean\n",
        capsys.readouterr().out,
    )
    pytest.importorskip("skops", reason="installed with the next `make`: it is in the lock files")
    from headway.estimate.winners import kept, opened

    X, y = TraceFeatures().transform(headway.traces()), headway.traces()["iteration_s"]
    fitted = names["trees"]().fit(X, y.to_numpy(float))
    assert opened(kept(fitted)).predict(X) == pytest.approx(fitted.predict(X))
