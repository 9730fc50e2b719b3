"""What the documents say holds: their links, job files, commands, variables and keys."""

import re
from pathlib import Path

import pytest

from headway.cli import headway
from headway.model.job_text import parse_job
from headway.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
COMMAND = re.compile(r"(?:^ {4}|`)headway ([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    missing = [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists(page):
    assert set(COMMAND.findall(page.read_text())) <= set(headway.commands)


def test_the_job_files_are_jobs():
    blocks = FENCED.findall((ROOT / "docs/jobs.md").read_text())
    jobs = [parse_job(block.encode(), filename="docs/jobs.md") for block in blocks]
    assert [job.name for job in jobs] == ["flights", "hello", "wide"]
    # The first shows every field there is, so that nothing is left undocumented.
    shown = blocks[0]
    for part in (jobs[0], jobs[0].resources, jobs[0].training, jobs[0].dataset):
        for field in type(part).model_fields:
            assert field in shown, field


def test_the_environment_is_documented():
    page = (ROOT / "docs/operating.md").read_text()
    missing = {name for name in Settings.model_fields if f"`HEADWAY_{name.upper()}`" not in page}
    assert missing == {"nvml_library"}  # for tests
