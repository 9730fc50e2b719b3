"""Bad jobs at the client and at the gateway: refused, each by a line about its field.

`python benchmarks/bad_specs.py` does the same with twenty thousand, and says how long each takes.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.bad_specs import Spec, Verdict, judged, listed, small_site
from tests.support.spec_mutations import bad_specs, good_jobs

SEED = 12


def verdicts(folder: Path, specs: Sequence[Spec]) -> list[tuple[Spec, Verdict]]:
    with small_site(folder) as site:
        return list(zip(specs, judged(site, specs), strict=True))


def test_every_listed_bad_job_is_refused_by_a_line_about_its_field(tmp_path: Path) -> None:
    found = verdicts(tmp_path, listed())
    assert len(found) >= 300
    assert [each for each in found if not each[1].names(each[0].field)] == []


def test_so_are_generated_ones(tmp_path: Path) -> None:
    found = verdicts(tmp_path, list(bad_specs(SEED, 100)))
    assert [each for each in found if not each[1].names(each[0].field)] == []


def test_no_good_job_is_refused(tmp_path: Path) -> None:
    jobs = itertools.islice(good_jobs(SEED), 50)
    found = verdicts(tmp_path, [Spec(json.dumps(job), "") for job in jobs])
    assert [each for each in found if each[1].gateway or each[1].client] == []
