from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import FunctionTransformer

from headway.errors import EstimatorDamaged
from headway.estimate import store
from headway.estimate.candidates import candidates, quietly
from headway.estimate.estimator import Estimators
from headway.estimate.features import Configuration, Unit
from headway.estimate.frame import frame_of
from headway.estimate.kinds import Kind
from headway.estimate.regressors import Estimator
from headway.estimate.winners import Champions, Winners, kept, opened
from headway.model.trace import Trace

pytest.importorskip("skops", reason="installed with the next `make`: it is in the lock files")

AT = datetime(2026, 1, 2, tzinfo=UTC)
RUNS = [
    Trace(network, "v100", 1, batch, iteration_s=scale * batch / 100, recipe=network)
    for network, scale in (("a", 1.0), ("b", 3.0), ("c", 9.0))
    for batch in (8, 16, 32, 64, 128)
]
ASKED = Configuration("a", "v100", batch_size=24, recipe="a", iterations=1000)


@pytest.mark.parametrize("name", sorted(set(candidates()) - {"gp"}))
def test_every_candidate_is_kept_without_code_and_says_the_same(name):
    known = [
        replace(ASKED, batch_size=int(2**i), network=n, recipe=n) for i in range(6) for n in "ab"
    ]
    X = frame_of(known)
    with quietly():
        fitted = candidates()[name].fit(X, np.linspace(1.0, 9.0, len(X)))
    assert opened(kept(fitted)).predict_quantiles(X) == pytest.approx(fitted.predict_quantiles(X))


def test_a_type_that_nobody_named_is_refused():
    call = Estimator([("call", FunctionTransformer(func=print)), ("line", LinearRegression())])
    with pytest.raises(EstimatorDamaged, match="not trusted"):
        kept(Estimator([("line", _Theirs())]))
    with pytest.raises(EstimatorDamaged, match="print"):
        kept(call)


class _Theirs(LinearRegression):
    """Of a package that no entry point names."""


def test_a_site_answers_by_who_won_what_and_keeps_it(tmp_path):
    champions = Champions(Unit.ITERATION, {Kind.BATCH: "nearest", Kind.RECIPE: "gp"})
    site = Estimators.fit(RUNS, fitted_at=AT, champions=champions)
    store.save(site, tmp_path)
    loaded = store.load(tmp_path)
    assert loaded.champions == champions
    new_recipe = replace(ASKED, recipe="z", network="z")
    own = Estimators.fit(RUNS, fitted_at=AT)
    for asked, same in ((ASKED, False), (new_recipe, True)):
        (mine,), (plain,) = loaded.predict([asked]), own.predict([asked])
        assert (mine.runtime_s == pytest.approx(plain.runtime_s)) is same
        assert mine.runtime_low_s <= mine.runtime_s <= mine.runtime_high_s


@pytest.mark.parametrize("broken", [b"", b"PK\x03\x04", b"\x80\x04cos\nsystem\n"])
def test_one_that_fails_is_followed_by_headways_own(broken, caplog):
    usual = np.array([[1.0, 2.0, 3.0]])
    winners = Winners.of({Kind.RECIPE: "theirs"}, [], {"theirs": broken})
    assert (winners.said([ASKED], usual) == usual).all()
    assert "estimator theirs failed" in caplog.text
