"""A folder of code, from where it is written to a node and back as a result."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.site import LiveSite, wait_for, within_this_process
from tests.support.small_wheel import small_wheel

pytestmark = pytest.mark.prefect
TRAIN = """\
import os, pathlib, sys, helper
print("says", helper.WORD, *sys.argv[1:])
pathlib.Path("made.here").write_text("by the program")
pathlib.Path("train.py").write_text("changed by the program")
print("sees", *sorted(each.name for each in pathlib.Path().iterdir() if each.suffix))
print("in", os.getcwd())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "train.py").write_text(TRAIN)
    (place / "helper.py").write_text("WORD = 'one'\n")
    (place / ".gitignore").write_text("*.bin\n")
    (place / "data.bin").write_text("canary: it stays at home")
    return place


def typed(site: LiveSite, *words: str) -> str:
    """What a command prints that is typed on a laptop; it has to end well."""
    done = within_this_process(words, site.env | site.at_the_gateway())
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def run_id_of(site: LiveSite, name: str) -> str:
    return str(site.json("runs", "--name", name)[0]["run_id"])


def test_without_an_engine_a_program_of_which_nothing_is_said_gets_the_nodes_python(
    process_site: LiveSite, project: Path
) -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    small = ("--set", "resources.host_memory=128MiB", "--set", "resources.cpus=0.1")
    name = f"python-{os.urandom(3).hex()}"
    # Its worker has said which one that is by now, or says so in its next beat.
    said = typed(process_site, "run", "train.py", "--workdir", str(project), "--name", name, *small)
    assert f"in python:{version}, the newest Python that its nodes have" in said
    assert "Completed" in said
    asked = ["run", "train.py", "--workdir", str(project), "--python", "3.99"]
    refused = process_site.run(*asked)
    assert (
        f"the nodes have no container engine, and another Python of their own: give {version}"
        in (refused.stderr)
    )


@pytest.fixture(params=["process", "docker"])
def site(request: pytest.FixtureRequest) -> LiveSite:
    live: LiveSite = request.getfixturevalue(f"{request.param}_site")
    return live


@pytest.mark.docker
def test_a_program_of_a_folder_runs_there_and_again(site, project, python_image) -> None:
    name = f"travels-{os.urandom(3).hex()}"
    here = ("--workdir", str(project), "--image", python_image, "--name", name)
    small = ("--set", "resources.host_memory=128MiB", "--set", "resources.cpus=0.1")
    said = typed(site, "run", "train.py", *here, *small, "--", "--lr", "0.1")
    assert "says one --lr 0.1" in said
    assert "sees helper.py made.here train.py\n" in said
    assert "Completed" in said
    first = run_id_of(site, name)
    kept = sorted(path.partition("/outputs/")[2] for path in site.show(first)["outputs"])
    assert kept == ["work/made.here", "work/train.py"]
    assert "2 files (36 B) of its working directory are in work/" in site.run("show", first).stdout
    (project / "helper.py").write_text("WORD = 'two'\n")
    said = typed(site, "rerun", name, "--watch", "--set", "name=again")
    assert "says one --lr 0.1" in said  # the code of then, not what the folder has now
    view = site.show(run_id_of(site, "again"))
    assert view["code"]["id"] == site.show(first)["code"]["id"]
    assert (view["code"]["files"], view["code"]["commit"]) == (3, None)
    assert "3 files" in site.run("show", first).stdout
    wait_for(
        lambda: not list((site.home / "work").iterdir()),
        lambda: str(list((site.home / "work").iterdir())),
    )


ENVIRONMENT = """\
import os, sys, small
print("has", small.WORD, "may write:", os.access(sys.prefix, os.W_OK))
"""


@pytest.mark.docker
def test_a_program_starts_in_the_environment_of_its_requirements(
    site, project, python_image
) -> None:
    name = f"needs-{os.urandom(3).hex()}"
    small_wheel(project, "small")
    (project / "train.py").write_text(ENVIRONMENT)
    (project / "json.py").write_text("raise SystemExit('the maker runs code of the job')")
    lines = f"--no-index\n--find-links .\nsmall==1.0  # {name}\n"
    (project / "requirements.txt").write_text(lines)
    here = ("--workdir", str(project), "--image", python_image, "--name", name)
    small = ("--set", "resources.host_memory=512MiB", "--set", "resources.cpus=0.1")
    said = typed(site, "run", "train.py", *here, *small, "--requirements", "requirements.txt")
    assert "making the environment of requirements.txt" in said
    assert "has small 1.0 may write: False" in said
    said = typed(site, "rerun", name, "--watch")
    assert "making" not in said
    assert "has small 1.0 may write: False" in said


def test_a_requirement_that_is_not_to_be_had_is_named(
    process_site: LiveSite, project: Path
) -> None:
    (project / "requirements.txt").write_text("--no-index\nno-such-package\n")
    job = project / "job.yaml"
    job.write_text(
        "name: cannot\nimage: python:3.11\ncommand: [python, train.py]\nworkdir: .\n"
        "requirements: requirements.txt\nresources: {cpus: 0.1, host_memory: 512MiB}\n"
    )
    run_id = json.loads(typed(process_site, "submit", str(job), "--json"))["run_id"]
    view = process_site.until(run_id, "Completed", "Failed")
    assert "no environment from requirements.txt: No solution found" in view["exit"]["message"]
    assert "no-such-package" in view["exit"]["message"]
    job.write_text(job.read_text().replace("requirements.txt", "other.txt"))
    env = process_site.env | process_site.at_the_gateway()
    done = within_this_process(("submit", str(job)), env)
    assert "requirements: got " in done.stderr
    assert "the folder that was sent has no such file" in done.stderr


def test_a_job_file_sends_the_folder_that_it_lies_in(process_site, project) -> None:
    job = project / "job.yaml"
    job.write_text(
        "name: by-file\nimage: python:3.11\ncommand: [python, train.py]\nworkdir: .\n"
        "resources: {cpus: 0.1, host_memory: 128MiB}\nretries: 0\n"
    )
    run_id = json.loads(typed(process_site, "submit", str(job), "--json"))["run_id"]
    view = process_site.until(run_id, "Completed", "Failed")
    assert view["state"] == "Completed"
    log = typed(process_site, "logs", run_id)
    assert "sees helper.py job.yaml made.here train.py\n" in log
    assert view["job"]["code"] == view["code"]["id"]
    # Once more: from the code as it was submitted, whatever the program has made of its copy.
    typed(process_site, "retry", run_id)
    again = process_site.until(run_id, "Completed", "Failed")
    assert (again["state"], again["attempt"]) == ("Completed", 2)


def test_data_of_a_laptop_is_put_read_and_removed(process_site: LiveSite, project: Path) -> None:
    name = f"birds-{os.urandom(3).hex()}"
    (project / "data.bin").write_text("brought along")
    said = typed(process_site, "data", "put", str(project / "data.bin"), "--name", name)
    assert f"dataset: {{uri: headway://{name}}}" in said
    (project / "train.py").write_text(READS)
    given = ("--workdir", str(project), "--image", "python:3.11", "--name", name)
    small = ("--set", "resources.host_memory=128MiB", "--set", "resources.cpus=0.1")
    data = (
        "--set",
        f"dataset.uri=headway://{name}",
        "--set",
        f"datasets.more.uri=headway://{name}",
    )
    said = typed(process_site, "run", "train.py", *given, *small, *data)
    assert "reads brought along brought along" in said
    shown = typed(process_site, "show", run_id_of(process_site, name))
    assert "copied to node" in shown
    assert "was in the cache of node" in shown
    assert f"headway://{name}" in typed(process_site, "data", "ls")
    assert f"{name} was removed" in typed(process_site, "data", "rm", name)
    assert f"headway://{name}" not in typed(process_site, "data", "ls")


READS = """\
import os, pathlib
more = pathlib.Path(os.environ["HEADWAY_DATA_MORE"])
print("reads", pathlib.Path(os.environ["HEADWAY_DATA"]).read_text(), more.read_text())
"""


def test_what_a_folder_may_not_have_is_refused_before_it_is_sent(
    process_site: LiveSite, project: Path
) -> None:
    def refused(*words: str) -> str:
        env = process_site.env | process_site.at_the_gateway()
        done = within_this_process(("run", *words, "--workdir", str(project)), env)
        assert done.returncode == 2
        return str(done.stderr)

    image = ("--image", "python:3.11")
    assert "no file of the folder" in refused("tarin.py", *image)
    assert "python: got " in refused("train.py", "--python", "3.4")
    (project / "key").symlink_to("/etc/hostname")
    assert "leads out of the folder" in refused("train.py", *image)


def test_a_program_runs_once_for_each_combination(process_site, project) -> None:
    name = f"ways-{os.urandom(3).hex()}"
    said = typed(
        process_site, "run", "train.py",
        "--workdir", str(project), "--image", "any", "--name", name,
        "--set", "resources.host_memory=128MiB", "--set", "resources.cpus=0.1",
        "--array", "lr=0.1,0.01", "--array", "seed=7", "--", "--lr", "{lr}", "--seed", "{seed}",
    )  # fmt: skip
    assert "Completed: 2 ended well" in said
    assert "says one --lr 0.01 --seed 7" in typed(process_site, "logs", f"{name}-2")
