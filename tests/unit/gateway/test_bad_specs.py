"""Bad jobs at the client and at the gateway: refused, each by a line about its field.

`python benchmarks/bad_specs.py` does the same with twenty thousand, and says how long each takes.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway.cli.main import headway
from headway.scheduler.intake import Intake, Offer
from headway.scheduler.limits import Gates
from tests.support.api import MEMBER, bearer, serving
from tests.support.bad_specs import (
    NO_TEXT,
    EmptyPrefect,
    Spec,
    Verdict,
    at_the_form,
    is_about,
    judged,
    listed,
    of_this_site,
    small_site,
    values_of,
)
from tests.support.spec_mutations import bad_specs, good_jobs

SEED = 12


def verdicts(folder: Path, specs: Sequence[Spec]) -> list[tuple[Spec, Verdict]]:
    with small_site(folder) as site:
        return list(zip(specs, judged(site, specs), strict=True))


def test_every_listed_bad_job_is_refused_by_a_line_about_its_field(tmp_path: Path) -> None:
    found = verdicts(tmp_path, listed())
    assert len(found) >= 300
    assert [each for each in found if not each[1].names(each[0].field)] == []


def test_so_it_is_at_prefects_form(tmp_path: Path) -> None:
    specs = listed()
    with small_site(tmp_path) as site:
        lines = at_the_form(site, specs)
    said = list(zip(specs, lines, strict=True))
    # Prefect's form leaves keys without a value out, and what is no JSON has no fields.
    assert [
        each for each in said if not (is_about(each[1], each[0].field) or _no_fields(each[1]))
    ] == []


def _no_fields(line: str) -> bool:
    return is_about(line, "body")


def test_so_it_is_in_a_flow_that_an_operator_has_started(tmp_path: Path) -> None:
    """By Prefect's own API: whoever plans refuses it, with that line as the state's message."""
    found = [(each, values_of(each)) for each in listed()[: -len(list(of_this_site()))]]
    specs = {str(number): each for number, (each, values) in enumerate(found) if values}
    with small_site(tmp_path) as site:
        now = site.ledger.now()
        offers = (Offer(each, each, found[int(each)][1], now) for each in specs)
        said = Intake(site, "gpu", Gates()).take_in(offers).refused
    assert len(said) == len(specs) > 270
    assert [(said[at], e) for at, e in specs.items() if not is_about(said[at], e.field)] == []


def test_so_it_is_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 2, one line about the field, nothing on stdout, and no traceback."""
    path, wrong = tmp_path / "job.yaml", []
    with small_site(tmp_path) as site, serving(site, EmptyPrefect()) as url:
        monkeypatch.setenv("HEADWAY_URL", url)
        for number, spec in enumerate(listed()):
            if number % 100 == 0:
                token = bearer(site, "ada", "vision", MEMBER)["Authorization"]
                monkeypatch.setenv("HEADWAY_TOKEN", token.removeprefix("Bearer "))
            text = (
                spec.text
                if isinstance(spec.text, bytes)
                else spec.text.encode("utf-8", "surrogatepass")
            )
            path.write_bytes(text)
            done = CliRunner().invoke(headway, ["submit", str(path)])
            line = done.stderr.replace(str(path), "job.yaml").rstrip("\n")
            about = is_about(line, spec.field) or NO_TEXT in line
            if (done.exit_code, done.stdout) != (2, "") or not about:
                wrong.append((spec, done.exit_code, line))
    assert wrong == []


def test_so_are_generated_ones(tmp_path: Path) -> None:
    found = verdicts(tmp_path, list(bad_specs(SEED, 100)))
    assert [each for each in found if not each[1].names(each[0].field)] == []


def test_no_good_job_is_refused(tmp_path: Path) -> None:
    jobs = itertools.islice(good_jobs(SEED), 50)
    found = verdicts(tmp_path, [Spec(json.dumps(job), "") for job in jobs])
    assert [each for each in found if each[1].gateway or each[1].client] == []
