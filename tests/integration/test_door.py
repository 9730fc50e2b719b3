"""Who comes in at a site's Prefect server, and that nobody else does."""

import json
import os
import re
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.site import LiveSite, sleeper, within_this_process

pytestmark = pytest.mark.prefect


def test_the_site_lets_in_who_knows_its_string_and_no_page(process_site: LiveSite) -> None:
    api = f"{process_site.url}/api"
    origin = {"Origin": "http://page.example"}
    runs, known = f"{api}/flow_runs/filter", httpx.BasicAuth(*process_site.auth().split(":"))
    with httpx.Client(headers=origin) as page:
        assert page.get(f"{api}/admin/settings").status_code == 401
        assert page.post(runs, json={}).status_code == 401
        # With the string, were it known, a page may read no answer.
        answer = page.get(f"{api}/admin/version", auth=known)
        assert "access-control-allow-origin" not in answer.headers
        asked = {"Access-Control-Request-Method": "POST"}
        assert page.options(runs, headers=asked).status_code == 400
    assert process_site.call("POST", "flow_runs/filter", {}) is not None
    assert process_site.run("runs").returncode == 0


def test_the_string_is_in_no_command_line_and_no_log(process_site: LiveSite) -> None:
    secret = process_site.auth()
    assert (process_site.home / "auth").stat().st_mode & 0o077 == 0
    shown = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    assert not any(secret in line for line in shown)
    told = {str(path) for path in files(process_site.home) if secret in text(path)}
    assert told == {str(process_site.home / name) for name in ("auth", "p/profiles.toml")}


def files(folder: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names]


def text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if path.is_file() else ""


def test_a_wrong_string_is_refused_with_the_next_step(process_site: LiveSite, tmp_path) -> None:
    stranger = LiveSite(
        tmp_path, "process", process_site.port,
        PREFECT_API_URL=f"{process_site.url}/api", PREFECT_API_AUTH_STRING="a:wrong",
    )  # fmt: skip
    done = stranger.run("doctor")
    assert done.returncode == 1
    assert "refuses this auth string" in done.stdout
    assert "give it as PREFECT_API_AUTH_STRING" in done.stdout
    # What the others rest on comes first: this home has no ledger of its own.
    assert re.search(
        "^Do first: database: .*; then run `headway doctor` again$", done.stdout, re.MULTILINE
    )


def test_a_member_needs_an_address_and_a_token_alone(
    process_site: LiveSite, tmp_path: Path
) -> None:
    """Another home, no ledger, no string of Prefect's: from a laptop it looks no different."""
    token = process_site.json("user", "add", "ada", "--team", "vision")["token"]
    member = process_site.at_the_gateway() | {"HEADWAY_TOKEN": token}
    laptop = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **member}

    def typed(*words: str) -> str:
        done = within_this_process(words, laptop)
        assert done.returncode == 0, done.stderr
        return done.stdout

    job = tmp_path / "job.json"
    job.write_text(json.dumps(sleeper(2, name="short")))
    watched = typed("submit", str(job), "--watch", "--set", "name=watched")
    assert "Completed" in watched
    assert '"iteration"' in typed("logs", "watched")
    job.write_text(json.dumps(sleeper(2400, name="by-ada")))
    run_id = json.loads(typed("submit", str(job), "--key", "one", "--json"))["run_id"]
    assert json.loads(typed("submit", str(job), "--key", "one", "--json"))["run_id"] == run_id
    process_site.until_training(run_id)
    seen = json.loads(typed("show", "by-ada", "--json"))
    assert (seen["owner"], seen["team"], seen["state"]) == ("ada", "vision", "Running")
    assert {run["team"] for run in json.loads(typed("runs", "--json"))} == {"vision"}
    for command in ("queue", "nodes", "top --once", "estimate", "submit --dry-run"):
        words = command.split()
        typed(*words, *([str(job)] if words[0] in {"estimate", "submit"} else []))
    assert json.loads(typed("cancel", run_id, "--json"))["run_id"] == run_id
    process_site.until(run_id, "Cancelled")
    acts = [each["act"] for each in process_site.json("audit", "--actor", "ada")]
    # Newest first; another test of this site may have an ada, too.
    assert acts[:4] == ["run.cancel", *["run.submit"] * 3]
    assert not [path for path in tmp_path.iterdir() if path != job]  # nothing was kept there
