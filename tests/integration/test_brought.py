"""Estimators that others have brought: in a process of their own, without rights."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headway.node.brought import BroughtEstimators
from tests.conftest import NOBODY

pytest.importorskip("skops", reason="installed with the next `make`: it is in the lock files")

USER = NOBODY if os.geteuid() == 0 else None
X = pd.DataFrame({"batch_size": [1.0, 2.0, np.nan, 4.0, 8.0, 16.0], "recipe": list("aabbab")})
SECONDS = np.array([1.0, 2.0, 3.0, 4.0, 8.0, 16.0])
SPLITS = [(np.array([0, 1, 2, 3]), np.array([4, 5])), (np.array([2, 3, 4, 5]), np.array([0, 1]))]

PACKAGE = """
import os, socket, time
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor

class Twice(BaseEstimator):
    def fit(self, X, y):
        self.middle_ = float(np.median(y))
        return self
    def predict_quantiles(self, X, q=(0.1, 0.5, 0.9)):
        return self.middle_ * np.outer(np.ones(len(X)), [0.5, 1.0, 2.0])

class Trees(Twice):
    def fit(self, X, y):
        HistGradientBoostingRegressor().fit(X[["batch_size"]], y)
        return super().fit(X, y)

class Nonsense(Twice):
    def predict_quantiles(self, X, q=(0.1, 0.5, 0.9)):
        return -np.ones((len(X), 3))

class Hangs(Twice):
    def fit(self, X, y):
        while True: pass

class Slow(Twice):
    def predict_quantiles(self, X, q=(0.1, 0.5, 0.9)):
        before_s = time.process_time()
        while time.process_time() < before_s + 2.5: pass
        return super().predict_quantiles(X, q)

class Eats(Twice):
    def fit(self, X, y):
        self.all_ = np.ones(2**33)

class Looks(Twice):
    def fit(self, X, y):
        found = [os.geteuid()]
        for wanted in (lambda: open("/etc/shadow").read(),
                       lambda: os.write(os.open("/tmp/brought-x", os.O_CREAT | os.O_RDWR), b"x"),
                       os.fork, lambda: socket.create_connection(("127.0.0.1", 9), 1)):
            try:
                wanted(); found.append("could")
            except OSError:
                found.append("refused")
        raise ValueError(repr([*found, sorted(os.environ)]))

class Calls(Twice):
    def fit(self, X, y):
        self.call_ = os.system
        return self
"""


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BroughtEstimators:
    """A package with one entry point for each class, found by its folder."""
    folder = tmp_path / "site"
    (folder / "theirs-1.0.dist-info").mkdir(parents=True)
    (folder / "theirs.py").write_text(PACKAGE)
    classes = ("Twice", "Trees", "Nonsense", "Hangs", "Eats", "Looks", "Calls", "Slow")
    points = "\n".join(f"{each.lower()} = theirs:{each}" for each in classes)
    (folder / "theirs-1.0.dist-info" / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (folder / "theirs-1.0.dist-info" / "entry_points.txt").write_text(
        f"[headway.estimators]\n{points}\nNo Name! = theirs:Twice\n"
    )
    for each in (tmp_path, *tmp_path.parents):
        if each != Path("/") and each.stat().st_uid == os.geteuid():
            each.chmod(each.stat().st_mode | 0o011)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path.cwd()}")
    monkeypatch.setenv("HEADWAY_SECRET", "s3cret")
    monkeypatch.syspath_prepend(str(folder))
    return BroughtEstimators(USER, within_s=60.0)


def test_what_is_installed_is_named(brought: BroughtEstimators) -> None:
    assert [*brought.names()] == [
        "calls",
        "eats",
        "hangs",
        "looks",
        "nonsense",
        "slow",
        "trees",
        "twice",
    ]


@pytest.mark.parametrize("name", ["twice", "trees"])
def test_it_says_what_it_predicts_of_rows_it_has_not_seen(
    brought: BroughtEstimators, name: str
) -> None:
    said = brought.said(name, X, SECONDS, SPLITS)
    assert said is not None
    assert said.shape == (2, 6, 3)
    assert said[0, 4].tolist() == [1.25, 2.5, 5.0]
    assert np.isnan(said[0, :4]).all()
    assert said[1, 0, 1] == 6.0


def test_it_has_no_rights_and_is_shown_no_secret(
    brought: BroughtEstimators, caplog: pytest.LogCaptureFixture
) -> None:
    assert brought.said("looks", X, SECONDS, SPLITS) is None
    Path("/tmp/brought-x").unlink(missing_ok=True)
    assert "HEADWAY_SECRET" not in caplog.text
    if USER is not None:
        assert f"[{USER[0]}, 'refused', 'refused', 'refused', 'refused'," in caplog.text


@pytest.mark.parametrize("name", ["nonsense", "hangs", "eats", "none-such"])
def test_what_fails_takes_no_part(
    brought: BroughtEstimators, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    within = 8.0 if name == "hangs" else 60.0
    assert BroughtEstimators(USER, within).said(name, X, SECONDS, SPLITS) is None
    assert f"estimator {name} takes no part tonight" in caplog.text


def test_what_it_has_learnt_comes_without_code(
    brought: BroughtEstimators, caplog: pytest.LogCaptureFixture
) -> None:
    from headway.estimate.winners import opened

    data = brought.learn("twice", X, SECONDS)
    assert data is not None
    assert opened(data).predict_quantiles(X)[0].tolist() == [1.75, 3.5, 7.0]
    assert brought.learn("calls", X, SECONDS) is None
    assert "system" in caplog.text


def test_what_the_gateway_would_wait_for_has_learnt_nothing(
    brought: BroughtEstimators, caplog: pytest.LogCaptureFixture
) -> None:
    assert brought.learn("slow", X, SECONDS) is None
    assert "to predict 6 rows" in caplog.text
