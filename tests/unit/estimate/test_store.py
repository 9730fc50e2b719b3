import hashlib
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headway.errors import EstimatorDamaged
from headway.estimate import store
from headway.estimate.estimator import Estimators, digest
from headway.estimate.features import Configuration
from headway.model.trace import Trace
from headway.settings import Settings
from headway.site import Site
from tests.ports.clock import FakeClock

AT = datetime(2026, 1, 2, tzinfo=UTC)
ASKED = Configuration(network="a", gpu_type="v100", batch_size=24, iterations=1000)


def fitted(version=1):
    traces = [
        Trace(network, "v100", 1, batch, iteration_s=scale * batch / 100)
        for network, scale in (("a", 1.0), ("b", 3.0))
        for batch in (8, 16, 32, 64, 128)
    ]
    return Estimators.fit(traces, fitted_at=AT, version=version)


def test_what_is_loaded_predicts_what_was_saved(tmp_path):
    estimators = fitted()
    store.save(estimators, tmp_path)
    loaded = store.load(tmp_path)
    assert loaded.predict([ASKED]) == estimators.predict([ASKED])
    assert (loaded.fitted_at, loaded.seen) == (AT, estimators.seen)


def test_nothing_saved_means_nothing_known(tmp_path):
    assert store.load(tmp_path / "none").predict([ASKED])[0].runtime_s is None


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"\x80\x04cos\nsystem\n"])
def test_damage_falls_back_to_the_version_before_with_a_warning(tmp_path, caplog, damage):
    store.save(fitted(1), tmp_path)
    path = store.save(fitted(2), tmp_path)
    path.write_bytes(damage)
    assert store.load(tmp_path).version == 1
    assert "sha256" in caplog.text


def test_one_changed_byte_is_noticed(tmp_path):
    path = store.save(fitted(), tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EstimatorDamaged, match="sha256"):
        store.read(path)
    assert store.load(tmp_path).version == 0


def kept_as(text, tmp_path):
    path = tmp_path / f"estimators-000009-{hashlib.sha256(text).hexdigest()}.json"
    path.write_bytes(text)
    return path


def test_of_what_is_no_model_or_of_another_format_nothing_is_built(tmp_path):
    text = store.save(fitted(), tmp_path).read_bytes()
    store.read(kept_as(text, tmp_path))
    others = (
        text.replace(b'"format":7', b'"format":4'),
        text.replace(b'"version":1', b'"version":"__import__"'),
        pickle.dumps(Estimators),
        b"[]",
    )
    for other in others:
        with pytest.raises(EstimatorDamaged):
            store.read(kept_as(other, tmp_path))


def test_rolling_back_uses_the_version_named_and_never_a_later_one(tmp_path):
    first = store.save(fitted(1), tmp_path)
    store.save(fitted(2), tmp_path)
    store.use(first, tmp_path)
    assert store.load(tmp_path).version == 1
    first.unlink()
    assert store.load(tmp_path).version == 0


def test_predicting_loads_nothing_that_only_fitting_needs():
    code = (
        "import sys, headway.gateway.estimate, headway.estimate.store;"
        "print({'scipy.optimize', 'scipy.stats', 'scipy.spatial', 'sklearn', 'pandas',"
        " 'matplotlib', 'prefect'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def of_team(team, scale):
    """Runs of one recipe, each of which took *scale* times as long and as much memory."""
    return [
        Trace("a", "v100", 1, batch, iteration_s=scale * batch, recipe="r", team=team,
              host_peak_bytes=int(scale * 1e9))
        for batch in (8, 16, 32, 64, 128)
    ]  # fmt: skip


def test_a_teams_runs_teach_that_team_alone(tmp_path):
    traces = [*of_team("", 1.0), *of_team("vision", 100.0), *of_team("speech", 3.0)]
    store.save(Estimators.fit(traces, fitted_at=AT, version=1), tmp_path)
    loaded = store.load(tmp_path)
    asked = replace(ASKED, recipe="r")
    new, speech, vision = loaded.predict(
        [replace(asked, team=team) for team in ("new", "speech", "vision")]
    )
    store.save(Estimators.fit(of_team("", 1.0), fitted_at=AT, version=1), tmp_path / "only")
    only = store.load(tmp_path / "only")
    assert new == replace(only.predict([asked])[0], basis=new.basis)
    others = [t for t in traces if t.team != "vision"]
    store.save(Estimators.fit(others, fitted_at=AT, version=1), tmp_path / "others")
    without = store.load(tmp_path / "others")
    assert speech == without.predict([replace(asked, team="speech")])[0]
    assert vision.runtime_s > 2 * speech.runtime_s
    assert "5 of 5 traces" in new.basis
    assert loaded.seen == {digest(trace) for trace in traces}


def test_a_process_that_lives_on_goes_by_what_a_refit_chose(tmp_path):
    site = Site(Settings(home=tmp_path), FakeClock())
    old = site.estimators
    assert site.estimators is old
    store.save(Estimators(version=3), site.settings.models_dir)
    assert site.estimators.version == 3
