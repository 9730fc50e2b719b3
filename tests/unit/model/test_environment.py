"""What environments are known by."""

import pytest

from headway.model.environment import environment_id, leads_elsewhere


def of(image="python:3.11", path="requirements.txt", content=b"torch==2\n", code_id="c1"):
    return environment_id(image, path, content, code_id)


def test_runs_of_other_code_share_it():
    assert of() == of(code_id="c2") == of(path="env/other.txt")
    assert len({of(), of(image="python:3.12"), of(content=b"torch==3\n")}) == 3


def test_all_of_the_code_counts_where_the_file_leads_to_others():
    assert of(content=b"-r more.txt") != of(content=b"-r more.txt", code_id="c2")


@pytest.mark.parametrize(
    "text",
    ["-r more.txt", "--requirement=more.txt", "-c pins.txt", "-e .", ".", "./wheels/a.whl",
     "/srv/a.whl", "--find-links wheels", "a @ file:///srv/a.whl", "a @ ./a", "a-1.0.tar.gz"],
)  # fmt: skip
def test_lines_that_lead_elsewhere(text):
    assert leads_elsewhere("requirements.txt", f"numpy\n  {text}\n")


@pytest.mark.parametrize(
    "text",
    ["torch==2.1 --hash=sha256:ab", "numpy ; python_version < '3.12'", "# -r more.txt",
     "--index-url https://example.org/simple", "a @ https://example.org/a.whl", "--no-index",
     "pandas[parquet]>=2"],
)  # fmt: skip
def test_lines_that_do_not(text):
    assert not leads_elsewhere("requirements.txt", text)


def test_a_project_leads_elsewhere_by_uvs_own_table_alone():
    assert not leads_elsewhere("pyproject.toml", "[project]\ndependencies = ['a']\n")
    assert leads_elsewhere("pyproject.toml", "[tool.uv.sources]\na = {path = '../a'}\n")
