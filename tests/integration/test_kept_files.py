"""What a program has written into its working copy, and what becomes of it at its end."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.model.code import CodeManifest
from headway.model.job import TrainingJob
from headway.model.sent_files import SentFile
from headway.run.attempt import Attempt
from headway.run.code import working_copy
from headway.run.kept_files import keep_new_files
from headway.run.outputs import list_outputs
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from tests.support.postgresql import with_ledger
from tests.support.queued import begun

RUN = "00000000-0000-4000-8000-000000000001"
CODE = b"print('training')\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(Settings(home=with_ledger(tmp_path), runtime="process", node="here"), SystemClock())
    join_site(site)
    return site


def attempt_of(site: Site, outputs: list[str]) -> Attempt:
    """A run whose container would start now, in its own copy of two files."""
    part = sha256(CODE).hexdigest()
    sent = [SentFile(name, len(CODE), (part,)) for name in ("train.py", "results.csv")]
    manifest = CodeManifest.of(sent)
    site.ledger.code.accept("default", manifest)
    site.ledger.code.put("default", [CODE], most_bytes=1 << 20)
    site.ledger.code.accept("default", manifest)
    job = TrainingJob(name="job", image="image:1", command=["true"], code=manifest.content_id)
    attempt = begun(site, RUN, job.model_copy(update={"outputs": outputs}))
    attempt.made("outputs")
    assert working_copy(attempt) == attempt.working_copy
    return attempt


@pytest.fixture
def attempt(site: Site) -> Attempt:
    return attempt_of(site, ["**"])


def write(attempt: Attempt, *names: str) -> None:
    for name in names:
        path = attempt.working_copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)


def kept(attempt: Attempt) -> list[bytes]:
    found = list_outputs(attempt.folder)
    assert found is not None
    return [each.name for each in found.files]


def test_new_files_are_moved_and_it_is_said_what_was_not(attempt: Attempt) -> None:
    write(
        attempt,
        "runs/now/events",
        "model.pt",
        "results.csv",
        "data/raw/images",
        "a/__pycache__/a.pyc",
    )
    (attempt.folder / "outputs" / "own.txt").touch()
    found = keep_new_files(attempt.site, attempt.container)
    assert kept(attempt) == [
        b"own.txt",
        b"work/model.pt",
        b"work/results.csv",
        b"work/runs/now/events",
    ]
    assert found.sentence() == (
        "3 files (2.9 KiB) of its working directory are in work/; not kept of it: data (1000 B)"
    )
    assert (attempt.working_copy / "train.py").exists()
    assert keep_new_files(attempt.site, attempt.container).files == 0
    attempt.clean_up()
    assert len(kept(attempt)) == 4


def test_what_the_job_names_is_kept_of_data_too_and_results_of_anything(site: Site) -> None:
    attempt = attempt_of(site, ["*.pt", "data/*.txt"])
    write(attempt, "model.pt", "data/a.txt", "data/a.bin", "notes", "x/checkpoints/last.bin")
    attempt.clean_up()
    assert kept(attempt) == [b"work/data/a.txt", b"work/model.pt", b"work/x/checkpoints/last.bin"]


def test_the_next_attempt_replaces_what_the_one_before_wrote(attempt: Attempt) -> None:
    write(attempt, "runs/model.pt")
    keep_new_files(attempt.site, attempt.container)
    write(attempt, "runs/model.pt", "runs/more/model.pt")
    assert keep_new_files(attempt.site, attempt.container).files == 2
    assert kept(attempt) == [b"work/runs/model.pt", b"work/runs/more/model.pt"]


def test_no_link_leads_out_of_the_outputs_or_brings_in_what_is_elsewhere(
    attempt: Attempt, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "key").write_text("secret")
    write(attempt, "runs/a", "model.pt")
    (attempt.working_copy / "stolen").symlink_to(canary / "key")
    (attempt.working_copy / "folder").symlink_to(canary)
    os.mkfifo(attempt.working_copy / "pipe")
    work = attempt.folder / "outputs" / "work"
    work.mkdir()
    (work / "runs").symlink_to(canary)
    (work / "model.pt").symlink_to(canary / "key")
    found = keep_new_files(attempt.site, attempt.container)
    assert kept(attempt) == [b"work/model.pt"]
    assert dict(found.left) == {"runs": 1000}
    assert (canary / "key").read_text() == "secret"
    assert [each.name for each in canary.iterdir()] == ["key"]


def test_outputs_that_cannot_be_written_keep_nothing_from_being_cleaned_up(
    attempt: Attempt,
) -> None:
    write(attempt, "model.pt")
    (attempt.folder / "outputs" / "work").write_text("a file")
    assert keep_new_files(attempt.site, attempt.container).files == 0
    attempt.clean_up()
    assert not attempt.working_copy.exists()
    assert keep_new_files(attempt.site, attempt.container).sentence() == ""


def test_code_that_the_node_sees_no_more_is_not_taken_for_new(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt.site.ledger.code, "manifest", lambda *_: None)
    write(attempt, "model.pt")
    assert keep_new_files(attempt.site, attempt.container).files == 0
    assert kept(attempt) == []
