"""What a run keeps beyond its limits, and how late it is ended, whichever way it floods its node.

Runs on the process runtime of this machine, as root; with --docker on its engine too.

    PYTHONPATH=. python benchmarks/floods.py [--docker] [WAY…]

Each way writes until it is ended, and says after each step how much it has; what it had when it
was ended, beyond the limit, is what it kept. Exits 1 where that is more than a twentieth of the
limit and than two seconds of its writing, or an end comes more than five seconds late.
"""

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from headway.clock import SystemClock
from headway.model.job import TrainingJob
from headway.model.job_parts import Resources
from headway.model.lease import Lease
from headway.run.follow import Watched
from headway.settings import Settings
from headway.site import Site
from headway.this_node import join_site
from headway.trees import remove
from headway.units import MIB, format_size
from samples.local_image import PYTHON, build
from tests.support import postgresql
from tests.support.queued import begun

LIMIT_BYTES = 300 * MIB
MEMORY_BYTES = 512 * MIB
LEAST_BYTES = 4096
LATE_S = 5.0
STOPPED_AFTER_S = 5.0
RUN = "00000000-0000-4000-8000-{:012d}"

START = """
import os, socket, sys, time
out, end, mb, begun = os.environ["HEADWAY_OUTPUTS"], time.time() + 60, b"x" * 2**20, time.time()
os.chdir(out)
def told(size, files):
    line = f"{size} {files} {time.time() - begun:.2f}"
    print(line, flush=True)
def fill(path, unlink=False):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    if unlink: os.unlink(path)
    for _ in range(8): os.write(fd, mb)
    return fd
n = 0
"""
WRITES = {
    "large file": """
fd = os.open("large", os.O_WRONLY | os.O_CREAT)
while time.time() < end:
    n += os.write(fd, mb); told(n, 1)
""",
    "long names": """
for _ in range(40):
    os.mkdir("d" * 200); os.chdir("d" * 200)
while time.time() < end:
    os.close(fill(f"f{n}")); n += 1; told(n * 8 * 2**20, n + 40)
""",
    "empty files": """
while time.time() < end:
    os.close(os.open(f"f{n}", os.O_WRONLY | os.O_CREAT)); n += 1
    if n % 1000 == 0: told(n * 4096, n)
""",
    "folders": """
while time.time() < end:
    os.mkdir(f"d{n}"); n += 1
    if n % 1000 == 0: told(n * 4096, n)
""",
    "links of one file": """
while time.time() < end:
    if n % 50_000 == 0: os.close(os.open(f"f{n}", os.O_WRONLY | os.O_CREAT))
    else: os.link(f"f{n // 50_000 * 50_000}", f"f{n}")
    n += 1
    if n % 1000 == 0: told(n * 4096, n)
""",
    "unlinked": """
held = []
while time.time() < end:
    held.append(fill("f", unlink=True)); n += 1; told(n * 8 * 2**20, n)
""",
    "in messages": """
pairs = []
while time.time() < end:
    pairs.append(socket.socketpair()); fd = fill("f", unlink=True)
    socket.send_fds(pairs[-1][0], [b"m"], [fd]); os.close(fd); n += 1; told(n * 8 * 2**20, n)
""",
    "in a folder that is moved": """
import ctypes
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
for each in ("a", "b"):
    os.mkdir(each)
    for _ in range(2000): os.close(os.open(f"{each}/{_}", os.O_CREAT))
def late(name):
    found = []
    for each in ("a", "b"):
        os.mkdir(f"{each}/{name}"); found.append(os.listdir(each).index(name))
        os.rmdir(f"{each}/{name}")
    return min(found)
name = max(map("x{}".format, range(50)), key=late)
os.mkdir(f"a/{name}"); into = os.open(f"a/{name}", os.O_RDONLY)
time.sleep(3); begun = time.time()
if os.fork() == 0:
    places = {libc.inotify_add_watch(watch, each.encode(), 0x20): each for each in ("a", "b")}
    at = "a"
    while time.time() < end:
        events = os.read(watch, 4096)
        if places[events[-16]] == at:
            to = "b" if at == "a" else "a"
            os.rename(f"{at}/{name}", f"{to}/{name}"); at = to
    os._exit(0)
os.chdir(into)
while time.time() < end:
    os.close(fill(f"f{n}")); n += 1; told(n * 8 * 2**20, n)
""",
    "in io_uring": """
import ctypes
libc = ctypes.CDLL(None)
rings = []
while time.time() < end:
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
    fd = fill("f", unlink=True)
    if ring < 0 or libc.syscall(427, ring, 2, ctypes.byref(ctypes.c_int(fd)), 1) < 0:
        rings.append(os.dup(fd))
    rings.append(ring); os.close(fd); n += 1; told(n * 8 * 2**20, n)
""",
    "under mounts": """
import ctypes
libc = ctypes.CDLL(None)
held = []
if libc.unshare(0x10020000) == 0:
    open("/proc/self/setgroups", "w").write("deny")
while time.time() < end:
    os.close(fill("f")); os.close(os.open(f"m{n}", os.O_WRONLY | os.O_CREAT))
    if libc.mount(b"f", f"m{n}".encode(), b"", 4096, None):
        held.append(os.open("f", os.O_RDONLY))
    os.unlink("f"); n += 1; told(n * 8 * 2**20, n)
""",
} | {
    place: f"""
while time.time() < end:
    os.close(fill(f"{place}/headway-flood-{{n}}")); n += 1; told(n * 8 * 2**20, n)
"""
    for place in ("/tmp", "/var/tmp", "/dev/shm")
}
ENDLESS = {
    "log: yes": "while True: os.write(1, b'y\\n' * 50_000)",
    "log: \\r": "while True: os.write(1, b'\\r' * 100_000)",
    "log: progress": (
        "while True:\n n += 1; os.write(1, b'epoch 1 step %d/999999999 loss 0.1\\n' % n * 2000)"
    ),
    "folders, made and removed": "while True:\n os.mkdir('d'); os.rmdir('d')",
    "children": (
        "while True:\n"
        " if os.fork() == 0: os._exit(0)\n"
        " n += 1\n"
        " if n % 50 == 0:\n"
        "  for _ in range(50): os.wait()"
    ),
}


class Nobody:
    """Is told, and forgets."""

    def lines(self, data: bytes, skipped_bytes: int) -> None:
        """Nothing."""

    def watched(self, now: Watched) -> None:
        """Nothing."""


@dataclass(frozen=True)
class End:
    """How one run ended."""

    kind: str
    lasted_s: float
    """Until its container had ended."""
    told_s: float
    """Until that was known and settled."""
    log: str


def run(
    site: Site,
    number: int,
    image: str,
    program: str,
    *,
    disk: str = "300MiB",
    limit_s: float | None = None,
    cancel_s: float | None = None,
) -> End:
    """Run *program* to its end."""
    job = TrainingJob(
        name="flood",
        image=image or "none:local",
        command=["python3" if image else sys.executable, "-c", START + program],
        resources=Resources(host_memory="512MiB", cpus=0.5, disk=disk),
        max_runtime=None if limit_s is None else f"{limit_s:g}s",  # type: ignore[arg-type]
        stop_grace="1s",  # type: ignore[arg-type]
    )
    attempt = begun(site, RUN.format(number), job)
    lease = attempt.admit()
    assert isinstance(lease, Lease), lease
    if cancel_s is not None:
        stop = (attempt.container, 1.0)
        threading.Timer(cancel_s, site.runtime.stop, stop).start()
    began_s = time.monotonic()
    followed = attempt.train(lease, dict, Nobody())
    exit_, _ = attempt.settle(followed)
    told_s = time.monotonic() - began_s
    with attempt.log.open("rb") as log:
        log.seek(max(0, attempt.log.stat().st_size - 4096))
        tail = log.read().decode(errors="replace")
    attempt.clean_up()
    remove(site.settings.runs_dir / attempt.run_id)
    return End(exit_.kind.value, followed.runtime_s, told_s, tail)


def kept(site: Site, number: int, image: str, way: str) -> bool:
    """Print what *way* kept beyond the limit; whether that is little enough."""
    found = run(site, number, image, WRITES[way])
    size, files, took_s = 0.0, 0.0, 1.0
    for line in found.log.splitlines()[-2:]:
        words = line.split()
        if len(words) == 3 and all(each.replace(".", "").isdigit() for each in words):
            size, files, took_s = map(float, words)
    beyond = max(0.0, size - LIMIT_BYTES)
    is_memory = way == "/dev/shm" or found.kind == "out_of_memory"
    if is_memory:
        beyond = max(0.0, size - MEMORY_BYTES)
    left = sum(
        path.stat().st_size
        for place in ("/tmp", "/var/tmp", "/dev/shm")
        for path in Path(place).glob("headway-flood-*")
    )
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        for path in Path(place).glob("headway-flood-*"):
            path.unlink()
    rate = size / max(took_s, 0.01)
    good = beyond <= max(LIMIT_BYTES / 20, 2 * rate) and not left and found.kind != "ok"
    print(
        f"  {way:28} {found.kind:14} {format_size(int(beyond)):>9} and "
        f"{max(0, int(files) - LIMIT_BYTES // LEAST_BYTES):>7} files beyond, "
        f"{beyond / max(rate, 1):4.1f} s of writing; {format_size(left)} stayed behind"
        f"{'' if good else '   <- too much'}",
        flush=True,
    )
    return good


def late(site: Site, number: int, image: str, way: str) -> bool:
    """Print how late the time limit and a cancellation come while *way* goes on."""
    # Its log counts against its disk; here another limit has to end it.
    limited = run(site, number, image, ENDLESS[way], disk="12GiB", limit_s=STOPPED_AFTER_S)
    cancelled = run(site, number + 1, image, ENDLESS[way], disk="12GiB", cancel_s=STOPPED_AFTER_S)
    lates = [
        each - STOPPED_AFTER_S for each in (limited.lasted_s, limited.told_s, cancelled.told_s)
    ]
    good = max(lates) <= LATE_S and limited.kind == "timed_out"
    print(
        f"  {way:28} {limited.kind:14} time limit {lates[0]:+5.1f} s, known {lates[1]:+5.1f} s, "
        f"cancelled {lates[2]:+5.1f} s{'' if good else '   <- too late'}",
        flush=True,
    )
    return good


def main() -> int:
    """Try every way on each runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docker", action="store_true", help="the engine of this machine too")
    parser.add_argument("ways", nargs="*", metavar="WAY", help="only these")
    asked = parser.parse_args()
    all_good = True
    for runtime in ("process", "docker") if asked.docker else ("process",):
        image = build("python", PYTHON) if runtime == "docker" else ""
        with tempfile.TemporaryDirectory(prefix="floods-") as home:
            Path(home).chmod(0o755)
            settings = Settings(
                home=postgresql.with_ledger(Path(home)), runtime=runtime, node="here"
            )
            site = Site(settings, SystemClock())
            join_site(site)
            print(f"{runtime}: {format_size(LIMIT_BYTES)} of disk asked for")
            for number, way in enumerate([*WRITES, *ENDLESS]):
                if asked.ways and way not in asked.ways:
                    continue
                judge = kept if way in WRITES else late
                all_good &= judge(site, 1 + 2 * number, image, way)
    postgresql.stop_shared()
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
