"""Images made of this machine's own files: for machines that reach no registry.

    python -m samples.local_image headway-samples:local

`samples` is this interpreter with its standard library, the shared libraries
that it and its wheels need, a shell, the packages that the samples import, and
the samples at /app. `python` and `busybox` are smaller, for tests. It takes
seconds; the ordinary way is `samples/Dockerfile`.
"""

import argparse
import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import docker
from packaging.requirements import Requirement

BUSYBOX = "headway-test/busybox:local"
PYTHON = "headway-test/python:local"

# Of the standard library, what no training script needs.
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3",
             "site-packages", "dist-packages", "__pycache__"}  # fmt: skip
# Not linked by the interpreter, but by numpy, scikit-learn and torch.
_WHEEL_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "librt.so.1",
                    "libpthread.so.0", "libdl.so.2", "libutil.so.1", "libm.so.6")  # fmt: skip
_SAMPLES_NEED = ("scikit-learn", "pandas")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"  # noqa: S105 - a file, no secret


class MissingPiece(Exception):
    """This machine lacks something the image is made of."""


class _Image:
    """A root file system as a tar in memory."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self.buffer, mode="w")  # noqa: SIM115 - closed in done()
        self._seen: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        if path in self._seen or path in ("", "/"):
            return
        self.directory(str(Path(path).parent))
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(path, info)

    def file(self, target: str, source: Path) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.size, info.mode = source.stat().st_size, source.stat().st_mode & 0o755 | 0o444
        with source.open("rb") as content:
            self._add(target, info, content)

    def text(self, target: str, text: str) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.size, info.mode = len(text), 0o644
        self._add(target, info, io.BytesIO(text.encode()))

    def link(self, target: str, to: str) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, to, 0o777
        self._add(target, info)

    def _add(
        self, path: str, info: tarfile.TarInfo, content: io.BufferedIOBase | None = None
    ) -> None:
        if path in self._seen:
            return
        if info.type != tarfile.DIRTYPE:
            self.directory(str(Path(path).parent))
        self._seen.add(path)
        self._tar.addfile(info, content)

    def done(self) -> bytes:
        self._tar.close()
        return self.buffer.getvalue()


def busybox_root() -> bytes:
    """A tar with a static busybox and its applets."""
    busybox = _static_busybox()
    if busybox is None:
        raise MissingPiece("a static busybox (Debian: apt-get install busybox-static)")
    image = _Image()
    _add_folders(image)
    _add_busybox(image, busybox)
    return image.done()


def _static_busybox() -> Path | None:
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    return busybox if busybox.exists() and not _linked(busybox) else None


def _add_folders(image: _Image) -> None:
    image.directory("/tmp", 0o1777)
    for path in ("/proc", "/sys", "/dev", "/etc", "/root", "/var/tmp"):
        image.directory(path)
    image.text("/etc/passwd", _PASSWD)
    image.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")


def _add_busybox(image: _Image, busybox: Path) -> None:
    image.file("/bin/busybox", busybox)
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True)
    for applet in applets.stdout.split():
        image.link(f"/bin/{applet}", "busybox")


def _add_shell(image: _Image) -> dict[str, Path]:
    """Add a static busybox, else this machine's own shell; the libraries that it needs."""
    busybox = _static_busybox()
    if busybox is not None:
        _add_busybox(image, busybox)
        return {}
    shell = Path("/bin/sh").resolve()
    if not shell.exists():
        raise MissingPiece("a shell at /bin/sh")
    image.file("/bin/sh", shell)
    return _linked(shell)


def python_root(packages: Iterable[str] = ()) -> bytes:
    """A tar with this interpreter, its libraries, a shell and installed *packages*."""
    return _python_image(packages, None).done()


def _python_image(packages: Iterable[str], samples: Path | None) -> _Image:
    image = _Image()
    _add_folders(image)
    libraries = _add_shell(image)
    binary = Path(sys.executable).resolve()
    image.file(str(binary), binary)
    libraries |= _linked(binary)
    stdlib = Path(sysconfig.get_path("stdlib"))
    for folder, folders, files in os.walk(stdlib):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in files:
            path = Path(folder, name)
            if path.suffix == ".a" or path.name.startswith("libpython"):
                continue
            image.file(str(path), path)
    extensions = sorted((stdlib / "lib-dynload").glob("*.so"))
    for path in extensions:
        libraries |= _linked(path)
    for name, path in sorted((libraries | _wheel_libraries()).items()):
        image.file(name if name.startswith("/") else f"/lib/{name}", path)
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        image.link(f"/usr/local/bin/{name}", str(binary))
        image.link(str(binary.with_name(name)), binary.name)  # where environments look for it
    _add_packages(image, packages)
    if samples is not None:
        for source in sorted(samples.rglob("*.py")):
            image.file(f"/app/samples/{source.relative_to(samples)}", source)
    return image


def samples_root() -> bytes:
    """A tar of the Python image with the samples and what they import."""
    return _python_image(_SAMPLES_NEED, Path(__file__).parent).done()


def _add_packages(image: _Image, names: Iterable[str]) -> None:
    """Add installed distributions, and what they require, where Python looks for them."""
    target = packages_folder(Path(sys.executable).resolve())
    waiting, seen = [Requirement(name) for name in names], set[str]()
    while waiting:
        requirement = waiting.pop()
        if requirement.name.lower() in seen or not _applies(requirement):
            continue
        seen.add(requirement.name.lower())
        found = importlib.metadata.distribution(requirement.name)
        waiting += [Requirement(line) for line in found.requires or ()]
        for file in found.files or ():
            source = Path(str(file.locate()))
            unwanted = {"tests", "__pycache__", ".."} & set(file.parts)
            if not unwanted and source.is_file():
                image.file(str(target / file), source)


def packages_folder(python: Path) -> Path:
    """Where the interpreter at *python* looks for packages: Debian's own has another place."""
    ask = [str(python), "-I", "-c", "import site; print(site.getsitepackages()[0])"]
    said = subprocess.run(ask, check=True, capture_output=True, text=True)
    return Path(said.stdout.strip())


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _linked(binary: Path) -> dict[str, Path]:
    """Shared libraries *binary* needs: name (or the loader's path) → file."""
    listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listing, re.MULTILINE):
        found[name] = Path(path).resolve()
    for loader in re.findall(r"^\s*(/\S*ld-linux\S*)", listing, re.MULTILINE):
        found[loader] = Path(loader).resolve()
    return found


def _wheel_libraries() -> dict[str, Path]:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    cache = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+) \(.*?\) => (/\S+)", cache, re.MULTILINE):
        if name in _WHEEL_LIBRARIES and name not in found:
            found[name] = Path(path).resolve()
            found |= {n: p for n, p in _linked(found[name]).items() if not n.startswith("/")}
    return found


def build(
    which: str, tag: str, *, packages: Iterable[str] = (), docker_host: str | None = None
) -> str:
    """Import the image *which* (`busybox` or `python`) as *tag*; the tag.

    Args:
        which: Its kind.
        tag: Its name.
        packages: Installed distributions that `python` has besides.
        docker_host: Address of the engine.

    Raises:
        MissingPiece: This machine has no shell; for `busybox`, no static busybox.
    """
    kinds: dict[str, Callable[[], bytes]] = {
        "busybox": busybox_root,
        "python": lambda: python_root(packages),
        "samples": samples_root,
    }
    root = kinds[which]()
    client = docker.DockerClient(base_url=docker_host) if docker_host else docker.from_env()
    with_path = ["ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"]
    if which == "samples":
        with_path += ["ENV PYTHONPATH=/app", "WORKDIR /app"]
    try:
        repository, _, version = tag.rpartition(":")
        client.api.import_image_from_data(
            root, repository=repository, tag=version, changes=with_path
        )
    finally:
        client.close()
    return tag


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", help="name of the image, such as headway-samples:local")
    parser.add_argument("--kind", choices=["samples", "python", "busybox"], default="samples")
    parser.add_argument("--docker-host", help="address of the engine; default as for docker")
    options = parser.parse_args()
    try:
        print(build(options.kind, options.tag, docker_host=options.docker_host))
    except MissingPiece as missing:
        sys.exit(f"cannot build {options.tag}: this machine lacks {missing}")


if __name__ == "__main__":
    main()
