"""The wheel, and an environment into which nothing but it and what it declares is installed."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> Path:
    """Build the wheel of this clone in *folder*, as any installer would, by its build backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    return wheel


def files(wheel: Path) -> dict[str, bytes]:
    """What *wheel* installs, by its path."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def install(wheel: Path, prefix: Path) -> Path:
    """Install *wheel* in a new environment.

    The packages that it declares, and those that they declare, are not downloaded: they are
    linked from the environment of the tests, which has the tested versions of them and of much
    more. What is not declared is not there.

    Args:
        wheel: The wheel.
        prefix: Where the environment is made.

    Returns:
        The folder of the environment's executables.
    """
    venv.create(prefix, symlinks=True)
    site_packages = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    for package in _declared(_metadata(wheel)):
        _link(package, prefix, prefix / site_packages / "site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin/python")]
    options = ["--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True, timeout=120)
    return prefix / "bin"


def _metadata(wheel: Path) -> Distribution:
    (folder,) = (each for each in ZipPath(wheel).iterdir() if each.name.endswith(".dist-info"))
    return PathDistribution(folder)


def _declared(package: Distribution) -> Iterator[Distribution]:
    """What *package* needs, without extras, and what that needs, each once."""
    seen: set[tuple[str, str]] = set()
    waiting = [(package, "")]
    while waiting:
        each, extra = waiting.pop()
        for text in each.requires or ():
            needed = Requirement(text)
            if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
                continue
            for wanted in ("", *needed.extras):
                if (needed.name, wanted) not in seen:
                    seen.add((needed.name, wanted))
                    waiting.append((distribution(needed.name), wanted))
    for name in {canonicalize_name(name) for name, _ in seen}:
        yield distribution(name)


def _link(package: Distribution, prefix: Path, site_packages: Path) -> None:
    for file in package.files or ():
        source, target = Path(str(file.locate())), Path(os.path.normpath(site_packages / file))
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent == prefix / "bin":
            here = source.read_bytes().replace(sys.prefix.encode(), bytes(prefix), 1)
            target.write_bytes(here)  # a script names the interpreter it belongs to
            target.chmod(0o755)
        elif source.exists() and not target.exists():
            try:
                target.hardlink_to(source)
            except OSError:  # another file system
                shutil.copy2(source, target)
