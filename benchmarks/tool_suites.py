"""The own tests of other tools against headway as their executor: passed, of how many.

    python benchmarks/tool_suites.py [submitit] [psij] [hydra-core] [--mirrors DIR]

On the site of `headway login`. submitit and Hydra ship their tests; PSI/J's are brought by git
address and commit into a temporary folder, or from --mirrors, a folder of bare git directories
OWNER/NAME.git.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PSIJ = ("https://github.com/ExaWorks/psij-python", "914ffa3a01e01308a06e947ec59bb142359dd02c")
PLAIN = ["-q", "--no-header", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout", "300"]
COUNT = re.compile(r"(\d+) (passed|failed|error)")


def main() -> int:
    """Print a row for each tool; 1 if a test failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tools", nargs="*", default=["submitit", "psij", "hydra-core"])
    parser.add_argument("--mirrors", type=Path)
    asked = parser.parse_args()
    print("| tool | version | passed | failed |\n|---|---|---|---|")
    failed = 0
    for tool in asked.tools:
        told = {"submitit": submitit, "hydra-core": hydra}.get(tool, lambda: psij(asked.mirrors))()
        counts = {what: int(count) for count, what in COUNT.findall(told)}
        lost = counts.get("failed", 0) + counts.get("error", 0)
        package = {"psij": "psij-python"}.get(tool, tool)
        print(f"| {tool} | {version(package)} | {counts.get('passed', 0)} | {lost} |", flush=True)
        if lost or not counts:
            print(told[-3000:], file=sys.stderr)
        failed += lost or not counts
    return int(failed > 0)


def submitit() -> str:
    """The tests of its plugins. Two of them want no plugin to be installed: their names say so."""
    others = "not find_good_plugin and not skip_bad_plugin"
    import submitit as package

    folder = Path(package.__file__).parent
    return _pytest(folder, ["core/test_plugins.py", "-k", others])


HYDRA = """\
from hydra.test_utils.launcher_common_tests import LauncherTestSuite
from pytest import mark

SMALL = ["+hydra.launcher.job.resources.cpus=0.1"]

@mark.parametrize("launcher_name, overrides", [("headway", SMALL)])
class TestLauncher(LauncherTestSuite):
    pass
"""


def hydra() -> str:
    """Its tests of a launcher; those of whole programs want node and caller to share files."""
    with tempfile.TemporaryDirectory() as made:
        Path(made, "test_launcher.py").write_text(HYDRA)
        return _pytest(Path(made), ["test_launcher.py"])


def psij(mirrors: Path | None) -> str:
    """The tests of an executor."""
    address, commit = PSIJ
    with tempfile.TemporaryDirectory() as made:
        bare = (
            mirrors / f"{'/'.join(address.split('/')[-2:])}.git" if mirrors else Path(made, "git")
        )
        if not mirrors:
            subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
            fetch = ["fetch", "--quiet", "--depth", "1", address, commit]
            subprocess.run(["git", "--git-dir", bare, *fetch], check=True)
        archive = Path(made, "tests.tar")
        words: list[str | Path] = ["archive", "--output", archive, commit, "tests"]
        subprocess.run(["git", "--git-dir", bare, *words], check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(made, filter="data")
        chosen = ["--executors", "headway", "test_executor.py"]
        return _pytest(Path(made, "tests"), [*chosen, "-k", "headway and not script_generation"])


def _pytest(folder: Path, words: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLAIN, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
