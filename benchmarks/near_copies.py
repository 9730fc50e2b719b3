"""What a copy from another node spares: `PYTHONPATH=. python benchmarks/near_copies.py`.

A web server that gives so much a second has a file. One node, in a process of its own, has staged
it and serves its cache over TLS; another node stages it from the source alone, and then from it.
"""

import argparse
import multiprocessing
import tempfile
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.model.job_parts import Dataset
from headway.model.node import Capacity, Node
from headway.node.file_server import serve_on
from headway.run.peers import NodePeers
from headway.settings import Settings
from headway.site import Site
from headway.staging.reader import UserReader
from headway.staging.rules import SourceRules
from headway.units import GIB, MIB
from tests.support import postgresql

PIECE_BYTES = MIB // 4


def site_of(folder: Path, node: str) -> Site:
    """The home of *node*, on the ledger that all of them share."""
    home = folder / node
    (home / "state").mkdir(parents=True, exist_ok=True)
    url = SecretStr((folder / "ledger.url").read_text())
    settings = Settings(home=home, ledger_url=url, node=node, runtime="process")
    site = Site(settings, SystemClock(), Ledger.open)
    report(site)
    return site


def report(site: Site) -> None:
    """Let the ledger hear of the node, as its worker does."""
    node = Node(site.settings.node, "gpu", Capacity(8.0, 64 * GIB))
    site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)


def staged(site: Site, uri: str, *, alone: bool) -> tuple[float, int]:
    """Seconds to have *uri*, and what of it came from other nodes; the copy counts as new."""
    reader = UserReader(None, SourceRules(hosts=("127.0.0.1",)))
    cache = site.cache_reading(reader, None if alone else NodePeers(site))
    from_s = time.monotonic()
    found = cache.stage(Dataset(uri=uri), "run", progress=lambda *_: None)
    return time.monotonic() - from_s, sum(found.peer_bytes.values())


def be_source(size_bytes: int, bytes_s: float, told: Any, sent: Any) -> None:
    """Be the web server."""

    class Far(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(size_bytes))
            self.send_header("ETag", '"one"')
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            began_s = time.monotonic()
            with suppress(OSError):  # who asks only looks whether it may be read
                for at in range(0, size_bytes, PIECE_BYTES):
                    time.sleep(max(0.0, began_s + at / bytes_s - time.monotonic()))
                    self.wfile.write(bytes(min(PIECE_BYTES, size_bytes - at)))
                    sent.value += PIECE_BYTES

        def log_message(self, *_: object) -> None:
            """Nothing is told."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Far)
    told.put(f"http://127.0.0.1:{server.server_address[1]}/set.bin")
    server.serve_forever()


def be_node(folder: Path, uri: str, told: Any) -> None:
    """Be the node that has the file."""
    site = site_of(folder, "near")
    staged(site, uri, alone=True)
    serve_on(site, "127.0.0.1", secured=True)
    told.put("")
    while True:
        report(site)
        time.sleep(5.0)


def main() -> None:
    """Start both, measure, and end them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--source-mib-s", type=float, default=50.0)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    sent = context.Value("q", 0, lock=False)
    with tempfile.TemporaryDirectory() as name, postgresql.server() as server:
        folder = Path(name)
        (folder / "ledger.url").write_text(postgresql.new_database(server))
        values = asked.size_mib * MIB, asked.source_mib_s * MIB, told, sent
        source = context.Process(target=be_source, args=values, daemon=True)
        source.start()
        uri = told.get()
        node = context.Process(target=be_node, args=(folder, uri, told), daemon=True)
        node.start()
        told.get()
        took_s = {}
        for what, alone in (("source alone", True), ("other node", False)):
            before, busy = sent.value, psutil.Process(node.pid)
            busy_s = sum(busy.cpu_times()[:2])
            took_s[what], near_bytes = staged(site_of(folder, what[:5]), uri, alone=alone)
            print(
                f"{what:13} {took_s[what]:6.1f} s, {asked.size_mib / took_s[what]:6.0f} MiB/s, "
                f"{(sent.value - before) / MIB:6.1f} MiB of the source, "
                f"{near_bytes / MIB:6.1f} MiB of the other node, which took "
                f"{sum(busy.cpu_times()[:2]) - busy_s:.1f} processor-s"
            )
        print(f"ratio         {took_s['source alone'] / took_s['other node']:6.1f}")
        for each in (node, source):
            each.kill()
            each.join()


if __name__ == "__main__":
    main()
