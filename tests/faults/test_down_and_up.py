"""A site goes down and comes up while runs are under way: they go on, or back to the queue."""

from pathlib import Path

from tests.support.site import LiveSite, sleeper, wait_for


def begun(site: LiveSite, folder: Path, steps: int = 120) -> str:
    run_id = site.submit(folder, **sleeper(steps, stop_grace="1s"))
    site.until_training(run_id)
    return run_id


def up(site: LiveSite) -> None:
    started = site.run("up")
    assert started.returncode == 0, started.stderr + started.stdout


def lines(site: LiveSite, run_id: str, attempt: int) -> int:
    log = site.home / "runs" / run_id / f"log/attempt-{attempt}.log"
    return log.read_text().count("iteration") if log.exists() else 0


def test_what_runs_goes_on_without_the_site_and_is_taken_up(site: LiveSite, tmp_path: Path) -> None:
    run_id = begun(site, tmp_path)
    pids = site.pids()
    asked = site.run("down")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert f"under way: sleeper ({run_id[:8]}) of" in asked.stderr
    assert "nobody can be asked: add --yes" in asked.stderr
    assert site.pids() == pids
    assert site.show(run_id)["state"] == "Running"

    ended = site.json("down", "--yes")
    assert (ended["requeued"], ended["going_on"]) == ([], [run_id])
    assert {"worker", "gateway", "server", "fork server"} <= set(ended["stopped"])
    assert not {"guard", "database"} & set(ended["stopped"])
    sql = "SELECT count(*) FROM lease WHERE run_id = :run_id AND released_at IS NULL"
    assert site.count(sql, run_id=run_id) == 1
    seen = lines(site, run_id, 1)
    wait_for(lambda: lines(site, run_id, 1) > seen + 8, lambda: f"no more than {seen} lines")

    up(site)
    view = site.until(run_id, "Completed", "Failed")
    assert (view["state"], view["attempt"], lines(site, run_id, 1)) == ("Completed", 1, 120), view


def test_what_is_stopped_goes_on_as_another_attempt(site: LiveSite, tmp_path: Path) -> None:
    run_id = begun(site, tmp_path)
    ended = site.json("down", "--stop", "--yes")
    assert (ended["requeued"], ended["going_on"]) == ([run_id], [])
    assert {"guard", "database"} <= set(ended["stopped"])
    assert 0 < lines(site, run_id, 1) < 120
    up(site)
    site.until_training(run_id)
    view = site.show(run_id)
    (first,) = [each["exit"] for each in view["attempts"] if each["exit"]]
    assert (view["attempt"], first["kind"]) == (2, "preempted")
    assert "goes on from its checkpoint" in first["message"]
    assert site.run("cancel", run_id).returncode == 0
    site.until(run_id, "Cancelled")


def test_it_waits_for_what_runs_and_starts_nothing_meanwhile(
    site: LiveSite, tmp_path: Path
) -> None:
    run_id = begun(site, tmp_path, steps=40)
    ended = site.json("down", "--wait")
    assert (ended["requeued"], ended["going_on"]) == ([], [])
    assert lines(site, run_id, 1) == 40
    up(site)
    assert site.until(run_id, "Completed", "Failed")["attempt"] == 1
