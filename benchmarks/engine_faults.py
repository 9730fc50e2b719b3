"""Faults while jobs are submitted to a real Slurm of two nodes: how many ran twice, or never.

    python benchmarks/engine_faults.py [--tries 200] [--crash]      # root; slurm-wlm, munge

Of each four tries one submitter is killed at a random moment (among them between `sbatch` and its
note), one meets a controller that is restarted, one a network that is cut at some moment, one a
disk that is full. Each is repeated until the engine has taken it, as followers do. With ``--crash``
controllers are killed, ten seconds apart: they lose what they knew last, ids included.
"""

import argparse
import os
import random
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.engine import request  # noqa: E402
from headway.clock import SystemClock  # noqa: E402
from headway.engine.errors import EngineAway  # noqa: E402
from headway.engine.place import Place  # noqa: E402
from headway.engine.port import Job, Phase, Request  # noqa: E402
from headway.engine.slurm import SlurmEngine  # noqa: E402
from tests.support.slurm import Slurm, slurm, why_none  # noqa: E402
from tests.support.small_disk import filled, small_disk  # noqa: E402

WITHIN_S = 0.06
"""A submission takes 32 ms on an idle machine."""


class Network:
    """Between a submit host and the controller: a relay that can be cut."""

    def __init__(self, controller: int) -> None:
        """Relay to that port of this machine."""
        self._controller = controller
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing comes through, and nobody is told."""
        self.is_cut = True

    def mend(self) -> None:
        """What hangs is broken off; new connections come through."""
        for pair in self._pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()
        self.is_cut = False

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.socket()
            with suppress(OSError):
                far.connect(("127.0.0.1", self._controller))
            self._pairs.append((near, far))
            threading.Thread(target=self._relay, args=(near, far), daemon=True).start()

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, suppress(OSError, ValueError):
            while True:
                for each in select.select([near, far], [], [])[0]:
                    data = each.recv(1 << 16)
                    while self.is_cut:
                        time.sleep(0.01)
                    if not data:
                        return
                    (far if each is near else near).sendall(data)


def tried(engine: SlurmEngine, each: Request) -> int:
    """A process that submits it; its id."""
    if (pid := os.fork()) == 0:
        with suppress(BaseException):
            engine.submit(each)
        os._exit(0)
    return pid


def gone(pid: int, *, kill: bool) -> None:
    """Wait for that process; at once, if it is to be killed."""
    if kill:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def until_taken(engine: SlurmEngine, each: Request) -> int:
    """Repeat it as long as the engine is away or the disk is full; how often."""
    for number in range(1, 200):
        try:
            engine.submit(each)
            return number
        except (EngineAway, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{each.key} was never taken")


def faults(
    engine: SlurmEngine, cluster: Slurm, network: Network, place: Path, *, crash: bool
) -> dict[str, Callable[[Request], None]]:
    """What happens to one try, by its name."""

    def killed(each: Request) -> None:
        pid = tried(engine, each)
        time.sleep(random.uniform(0.0, WITHIN_S))
        gone(pid, kill=True)

    def restarted(each: Request) -> None:
        if crash:
            time.sleep(10.0)
        pid = tried(engine, each)
        time.sleep(random.uniform(0.0, WITHIN_S))
        if crash:
            cluster.kill_controller()
        cluster.restart()
        gone(pid, kill=False)

    def cut_off(each: Request) -> None:
        pid = tried(engine, each)
        time.sleep(random.uniform(0.0, WITHIN_S))
        network.cut()
        time.sleep(0.5)
        gone(pid, kill=True)
        network.mend()

    def disk_full(each: Request) -> None:
        pid = tried(engine, each)
        time.sleep(random.uniform(0.0, WITHIN_S))
        with filled(place):
            gone(pid, kill=False)
            with suppress(OSError, EngineAway):
                engine.submit(each)

    return {
        "submitter killed": killed,
        "controller killed" if crash else "controller restarted": restarted,
        "network cut": cut_off,
        "disk full": disk_full,
    }


def main() -> None:
    """Print how many ran twice, or never, by fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--crash", action="store_true")
    given = parser.parse_args()
    tries = given.tries
    if missing := why_none():
        raise SystemExit(missing)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    (folder / "cluster").mkdir()
    place = folder / "place"
    with slurm(folder / "cluster", cpus=8, nodes=("n1", "n2")) as cluster, small_disk(place, 64):
        conf = Path(cluster.env["SLURM_CONF"])
        text = conf.read_text()
        port = re.search(r"SlurmctldPort=(\d+)", text)
        assert port is not None
        network = Network(int(port[1]))
        shutil.copy(conf.with_name("gres.conf"), folder / "gres.conf")
        (folder / "slurm.conf").write_text(text.replace(port[0], f"SlurmctldPort={network.port}"))
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        engine = SlurmEngine(Place(place), "bench", SystemClock())
        kinds = faults(engine, cluster, network, place, crash=given.crash)
        names, again = list(kinds), Counter()
        requests: dict[str, tuple[str, Request]] = {}
        for number in range(tries):
            name = names[number % len(names)]
            each = request(f"try{number}", f"echo once >> {folder}/ran{number}; sleep 0.2")
            requests[each.key] = name, each
            kinds[name](each)
            again[name] += until_taken(engine, each) > 1
        ended: dict[str, Job] = {}
        give_up_s = time.monotonic() + 600.0
        while len(ended) < tries and time.monotonic() < give_up_s:
            with suppress(EngineAway):
                jobs = [job for job in engine.jobs() if job.key in requests]
                ended = {job.key: job for job in jobs if job.phase is Phase.ENDED}
            for job in jobs:  # a controller that is killed forgets its last seconds: a follower
                if job.phase is Phase.ENDED and job.end is None:  # submits those anew
                    until_taken(engine, requests[job.key][1])
                    ended.pop(job.key)
            time.sleep(1.0)
        for name in names:
            keys = [key for key, (kind, _) in requests.items() if kind == name]
            ran = [_count(folder / key.replace("try", "ran")) for key in keys]
            print(
                f"{name}: {len(keys)} tries, {sum(n > 1 for n in ran)} ran twice, "
                f"{ran.count(0)} never, {len(ended.keys() & set(keys))} ends known, "
                f"{again[name]} repeated more than once",
                flush=True,
            )
            for key, times in zip(keys, ran, strict=True):
                if times != 1:
                    print(f"  {key} ran {times} times: {ended.get(key)}")


def _count(path: Path) -> int:
    return path.read_text().count("once") if path.exists() else 0


if __name__ == "__main__":
    main()
