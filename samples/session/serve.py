"""A web service for one user: a notebook of notes, kept in the user's folder from run to run.

Standard library alone. It stands for services such as Driverless AI, which are started for each
user at a port of their own, and keep data, log and temporary files in folders of that user.

    headway submit samples/session/job.yaml
    headway session --user-folder -- python -u -m samples.session.serve      # without a job file
"""

import hmac
import html
import os
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

BASE = os.environ["HEADWAY_SESSION_PATH"]
SECRET = os.environ["HEADWAY_SESSION_SECRET"]
DATA = Path(os.environ.get("HEADWAY_USER_DATA") or tempfile.mkdtemp())
LOG = Path(os.environ.get("HEADWAY_USER_LOG") or tempfile.mkdtemp()) / "requests.log"
MOST_BYTES = 10_000
PAGE = """<!doctype html><html lang="en"><title>Notes</title><h1>Notes</h1><ul>{notes}</ul>
<form method="post"><label>Note <input name="note" required></label> <button>Keep</button></form>
</html>"""


class Notes(BaseHTTPRequestHandler):
    """Shows the notes, and takes another one."""

    def do_GET(self) -> None:
        """All notes."""
        if self.allowed():
            kept = DATA / "notes.txt"
            lines = kept.read_text().splitlines() if kept.exists() else []
            self.answer(200, PAGE.format(notes="".join(f"<li>{html.escape(n)}" for n in lines)))

    def do_POST(self) -> None:
        """One more."""
        if self.allowed():
            length = min(int(self.headers.get("Content-Length") or 0), MOST_BYTES)
            note = parse_qs(self.rfile.read(length).decode()).get("note", [""])[0]
            with (DATA / "notes.txt").open("a") as kept:
                kept.write(" ".join(note.split()) + "\n")
            self.send_response(303)
            self.send_header("Location", BASE)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def allowed(self) -> bool:
        """Whether the gateway asks; others on the node may find the port, and not the secret."""
        shown = self.headers.get("Authorization", "")
        if not hmac.compare_digest(shown.encode(), f"Bearer {SECRET}".encode()):
            self.answer(403, "only by the gateway")
        elif self.path.partition("?")[0] != BASE:
            self.answer(404, "no such page")
        else:
            return True
        return False

    def answer(self, status: int, text: str) -> None:
        """Send a page."""
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        """A line for each request, in the user's folder."""
        with LOG.open("a") as log:
            log.write(f"{self.log_date_time_string()} {format % arguments}\n")


if __name__ == "__main__":
    where = (os.environ["HEADWAY_SESSION_HOST"], int(os.environ["HEADWAY_SESSION_PORT"]))
    with ThreadingHTTPServer(where, Notes) as server:
        print(f"notes of {DATA} are served at port {where[1]}", flush=True)
        server.serve_forever()
