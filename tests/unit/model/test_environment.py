"""What environments are made from, and known by."""

import pytest

from headway.errors import InvalidInput
from headway.model.environment import Requirements, environment_id, given, read_requirements

FOLDER = {
    "more.txt": b"torch==2\n", "pins.txt": b"numpy<3\n--index-url https://pins.example/simple\n",
    "wheels/a-1.whl": b"", "wheels/other.txt": b"", "b-1.whl": b"", "loop.txt": b"-r loop.txt\n",
}  # fmt: skip


def of(text: str, path: str = "requirements.txt") -> Requirements:
    folder = {**FOLDER, path: text.encode()}
    return read_requirements(path, folder, folder.__getitem__)


@pytest.mark.parametrize(
    "text",
    ["-r more.txt", "-r ./more.txt", "--requirement=more.txt", "torch == 2",
     "Torch==2 # pinned", "-r wheels/../more.txt", "torch==\\\n2", "\ufefftorch==2",
     "torch==2\r\n"],
)  # fmt: skip
def test_one_content_has_one_spelling(text: str) -> None:
    assert of(text) == of("torch==2\n")


def test_what_is_asked_for_is_told_from_everything_else() -> None:
    texts = (
        "torch==2", "torch==3", "torch[all]==2", "torch==2; python_version<'3.12'", "a-1.whl @ x",
        "torch==2\n-c pins.txt", "torch==2\n--index-url https://one.example/simple",
        "torch==2\n--index-url https://two.example/simple", "torch==2\n--no-index", "./b-1.whl",
        "torch==2\n--find-links wheels", "torch @ https://one.example/torch-2-none-any.whl",
        "torch==2 --hash=sha256:ab", "torch==2 --hash=sha256:ac", "torch==2\n--require-hashes",
    )  # fmt: skip
    found = [of(each) for each in texts if "@ x" not in each]
    assert len({environment_id(each.text, each.constraints_text) for each in found}) == len(found)


def test_the_wheels_that_it_may_lead_to_are_named() -> None:
    found = of("--no-index\n-f wheels\nb-1.whl\n")
    assert found.wheels == ("b-1.whl", "wheels/a-1.whl")
    assert found.text == "--no-index\n--find-links ./wheels\n./b-1.whl\n"
    assert of("a-1.0.tar.gz").lines == ("a-1-0-tar-gz",)  # no file, whatever its name
    assert of("-c pins.txt\na").constraints_text == "numpy<3\n"


@pytest.mark.parametrize(
    "line",
    ["-e .", "--editable=./pkg", "-e git+https://example.org/a", ".", "./pkg", "/srv/a.whl",
     "../a.whl", "missing.whl", "a @ file:///srv/a.whl", "a @ ./a-1.whl",
     "a @ https://example.org/a.tar.gz", "git+https://example.org/a", "https://example.org/a.whl",
     "a @ git+https://example.org/a", "--no-binary a", "--no-binary=:all:", "--index-url ./index",
     "--index-url file:///srv", "${HOME}/a.whl", "a @ https://${HOST}/a.whl", "-r none.txt",
     "-r ../more.txt", "-r /etc/passwd", "-rmore.txt", "--config-settings=x", "a -C x",
     "a --hash=sha256:ab --global-option=x", "a; x == '\x00'", "--trusted-host example.org",
     "-r loop.txt -e .", "a" + "(" * 5000],
)  # fmt: skip
def test_what_would_run_code_of_the_job_or_leave_its_folder_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        of(f"numpy\n  {line}\n")


def test_files_that_lead_to_each_other_end() -> None:
    assert of("-r loop.txt\na").lines == ("a",)


def test_a_project_gives_its_dependencies_and_nothing_that_a_build_makes() -> None:
    assert of("[project]\ndependencies = ['a', 'B >=2']\n", "p.toml").lines == ("a", "b>=2")
    for text in (
        "[project]\nname = 'p'\ndynamic = ['dependencies']\n", "[project]\ndependencies = 'a'\n",
        "[project]\ndependencies = ['-e .']\n", "not toml",
        "[ tool . uv ]\nsources = {}\n[project]\ndependencies = []\n",
        "[project]\ndependencies = [\"\"\"a; x == '\n-e .'\"\"\"]\n",
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            of(text, "p.toml")


def test_only_what_says_where_packages_come_from_is_given_of_a_jobs_variables() -> None:
    asked = {
        "UV_INDEX_URL": "https://a",
        "https_proxy": "b",
        "UV_NO_BINARY": "a",
        "LD_PRELOAD": "x",
    }
    assert given(asked) == {"UV_INDEX_URL": "https://a", "https_proxy": "b"}
