"""The commands, on a home of their own with an embedded ledger."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.answers import checked
from headway.cli.estimate import estimate, traces
from headway.cli.estimators import estimators
from headway.errors import InvalidInput, NotInstalled
from headway.estimate.evaluation.tournament import tournament
from headway.estimate.kinds import TOURNAMENT
from headway.model.node import Capacity, Gpu, Node
from headway.model.trace import Trace
from headway.site import current_site
from headway.units import GIB
from tests.support.api import own_gateway
from tests.support.postgresql import with_ledger
from tests.support.site import forget_site

GAVEL = Path(__file__).parents[1] / "data" / "runtime-gavel.csv"


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWAY_HOME", str(with_ledger(tmp_path / "home")))
    forget_site()
    current_site().make_ledger()
    yield current_site()
    forget_site()


@pytest.fixture
def gateway(site, monkeypatch):
    with own_gateway(site, monkeypatch):
        yield


def run(command, *arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False).stdout


def test_traces_come_in_and_go_out(site, tmp_path):
    got = checked(
        ("traces", "import"), run(traces, "import", str(GAVEL), "--source", "gavel", "--json")
    )
    assert (got["imported"], len(got["left_out"])) == (405, 6)
    assert [n.split(" ")[0] for n in got["notices"]] == ["iteration_s", "estimates"]
    out = tmp_path / "out.csv"
    run(traces, "export", "--source", "gavel", "--output", str(out))
    assert len(out.read_text().splitlines()) == 406
    again = json.loads(run(traces, "import", str(GAVEL), "--source", "gavel", "--json"))
    assert (again["imported"], again["already_known"]) == (0, 405)
    said = run(traces, "import", str(out))
    assert said.startswith("0 traces imported from out.csv, 405 known already, 0 rows left out\n")
    parquet = tmp_path / "out.parquet"
    run(traces, "export", "--output", str(parquet))
    assert run(traces, "import", str(parquet)).startswith("0 traces imported from out.parquet, 405")
    assert site.ledger.traces.count() == 405


def test_without_pyarrow_a_sentence_says_what_to_install(site, tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    file = tmp_path / "t.parquet"
    with pytest.raises(NotInstalled, match=r"pip install 'headway\[parquet\]'$"):
        run(traces, "export", "--output", str(file))
    file.write_bytes(b"PAR1")
    with pytest.raises(NotInstalled, match=r"^Parquet files need pyarrow"):
        run(traces, "import", str(file))
    assert site.ledger.traces.count() == 0


def test_the_evaluation_of_a_file_is_json_with_the_promised_keys_and_needs_no_site(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "none"))
    forget_site()
    few = tmp_path / "few.csv"  # how good the estimates are is asked in unit/estimate
    few.write_text("".join(GAVEL.read_text().splitlines(keepends=True)[:41]))
    got = checked(
        ("estimators", "evaluate"), run(estimators, "evaluate", "--traces", str(few), "--json")
    )
    assert (got["rows"], got["of"], got["unit"]) == (40, 40, "iteration")
    assert {row["model"] for row in got["table"]} >= {"gp", "boosting", "physics"}
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("gateway")
def test_an_estimate_marks_one_choice(site, tmp_path):
    cards = tuple(Gpu(f"GPU-{i}", i, "NVIDIA V100", 16 * GIB) for i in range(2))
    node = Node("n", "gpu", Capacity(8, 64 * GIB, cards), gpu_price_per_hour=2.0)
    site.ledger.nodes.register(node, boot_id="b", worker_token="t")
    job = tmp_path / "job.yaml"
    job.write_text("name: t\nimage: python:3.11\ncommand: [python]\nresources: {gpus: 1}\n")
    plot = tmp_path / "p.png"
    got = checked(("estimate",), run(estimate, str(job), "--json", "--plot", str(plot)))["options"]
    assert [o["gpus"] for o in got] == [1, 2]
    assert [o["chosen"] for o in got] == [True, False]
    assert got[0]["basis"].startswith("prior")
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "→" in run(estimate, str(job))


@pytest.mark.usefixtures("gateway")
def test_a_job_that_nothing_can_hold_is_refused(site, tmp_path):
    node = Node("n", "gpu", Capacity(8, 64 * GIB), gpu_price_per_hour=2.0)
    site.ledger.nodes.register(node, boot_id="b", worker_token="t")
    job = tmp_path / "job.yaml"
    job.write_text("name: t\nimage: python:3.11\ncommand: [python]\nresources: {cpus: 64}\n")
    for more in ((), ("--json",)):
        with pytest.raises(InvalidInput, match=r"resources\.cpus: got 64\.0; largest node n"):
            run(estimate, str(job), *more)


@pytest.mark.usefixtures("gateway")
def test_estimators_alone_say_how_far_off_they_were():
    assert "no run has ended" in run(estimators)
    assert json.loads(run(estimators, "--json")) == {"weeks": [], "worst": []}


def test_rolling_back_to_a_version_that_is_not_kept_is_refused(site):
    with pytest.raises(InvalidInput, match="there is none yet"):
        run(estimators, "use", "3")


def test_how_candidates_did_is_shown_once_they_have_met(site):
    assert "no estimators have been compared yet" in run(estimators, "scores")
    runs = [
        Trace("n", "v100", 1, 2 + i, iteration_s=2.0 + i, recipe=f"n{i % 3}", run_id=f"r{i}")
        for i in range(24)
    ]
    met = tournament(runs, site.tables, clock=site.clock)
    site.ledger.settings.keep(TOURNAMENT, asdict(met) | {"words": met.words()})
    said = run(estimators, "scores")
    assert "Candidates met on all 24 runs" in said
    assert "champion" in said
    assert checked(("estimators", "scores"), run(estimators, "scores", "--json"))["rows"] == 24
