"""Open MPI as Debian packages it: a program for it, and an image with this machine's Python."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import docker

from samples.local_image import _Image, _linked, _python_image

MPI = "headway-test/mpi:local"
_PACKAGES = (
    *("openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2", "libhwloc15", "libhwloc-plugins"),
    *("libevent-core-2.1-7", "libevent-pthreads-2.1-7"),
)

SUM = """\
import ctypes, os, socket
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
world, total, number = (
    ctypes.byref(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}"))
    for name in ("comm_world", "op_sum", "int")
)
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
mine, summed = ctypes.c_int(10 + rank), ctypes.c_int()
mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(summed), 1, number, total, world)
print("rank", rank, "has", summed.value, "on", socket.gethostname(), flush=True)
mpi.MPI_Finalize()
"""
"""A program whose processes add their numbers up; it needs no package."""


def why_none() -> str:
    """Why there can be no such image here; empty where there can."""
    found = Path("/usr/bin/orted").exists()
    return "" if found else "Open MPI is not installed (Debian: apt-get install openmpi-bin)"


def build_mpi_image(
    tag: str = MPI, packages: Iterable[str] = (), docker_host: str | None = None
) -> str:
    """Make it as *tag*, with installed *packages* besides, at that engine; its name."""
    image = _python_image(packages, None)
    libraries: dict[str, Path] = {}
    for package in _PACKAGES:
        listing = subprocess.run(
            ["dpkg", "-L", package], capture_output=True, text=True, check=True
        )
        for line in listing.stdout.splitlines():
            libraries |= _add(image, Path(line))
    for name in ("mpirun", "orted"):
        image.link(
            f"/usr/local/bin/{name}", "/usr/bin/orterun" if name == "mpirun" else "/usr/bin/orted"
        )
    for name, path in sorted(libraries.items()):
        image.file(name if name.startswith("/") else f"/lib/{name}", path)
    client = docker.DockerClient(base_url=docker_host) if docker_host else docker.from_env()
    try:
        repository, _, version = tag.rpartition(":")
        path = "ENV PATH=/usr/local/bin:/usr/bin:/bin"
        client.api.import_image_from_data(
            image.done(), repository=repository, tag=version, changes=[path]
        )
    finally:
        client.close()
    return tag


def _add(image: _Image, path: Path) -> dict[str, Path]:
    """Add one file of a package under its own name; the libraries that it is linked with."""
    if "doc" in path.parts or "man" in path.parts or not path.is_file():
        return {}
    image.file(str(path), path.resolve())
    return _linked(path) if ".so" in path.name or path.parent.name == "bin" else {}
