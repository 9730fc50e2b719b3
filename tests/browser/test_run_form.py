"""What a person does in the Prefect UI: fill in the run form, start the run, look at its page."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from headway.units import COST
from tests.support.browser import PATIENCE_MS, arrive, patiently, see
from tests.support.site import LiveSite, wait_for

pytestmark = pytest.mark.browser


def sign_in(page, site: LiveSite) -> None:
    """Open the UI as `up` prints it, and give the login what `up` says."""
    page.goto(site.url)
    asked = page.locator("input[type=password]")
    patiently(page, lambda: asked.wait_for(timeout=PATIENCE_MS))
    asked.fill(site.auth())
    asked.press("Enter")
    arrive(page, "/dashboard")
    page.get_by_text("Flow Runs", exact=True).first.wait_for()


def test_the_page_shows_nothing_before_the_login(page, process_site: LiveSite) -> None:
    for ui in ("", "/v2"):
        page.goto(f"{process_site.url}{ui}/runs")
        arrive(page, "login")
        wrong = page.locator("input[type=password]")
        wrong.fill("headway:wrong")
        with page.expect_response(lambda answer: answer.status == 401):
            wrong.press("Enter")
        assert "login" in page.url
    sign_in(page, process_site)
    page.get_by_role("link", name="Switch to V1 UI").or_(
        page.get_by_text("Switch to V1 UI")
    ).click()
    page.get_by_text("Flow Runs", exact=True).first.wait_for()


def test_a_run_is_started_from_its_form_and_watched_on_its_page(
    page, process_site: LiveSite, tmp_path: Path
) -> None:
    sign_in(page, process_site)
    before = {run["run_id"] for run in process_site.json("runs", "--members")}
    page.goto(f"{process_site.url}/deployments")
    page.get_by_role("link", name="default", exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()

    # Titles and descriptions make the form readable.
    for title in ("Image", "Command", "Host memory", "Time limit", "Secrets"):
        page.get_by_text(title, exact=False).first.wait_for()
    page.get_by_text("Hard limit, such as 8GiB").wait_for()
    name = page.locator("textarea").first
    expect(name).to_have_value("digits")  # the form fills itself a moment later
    name.fill("from-the-form")
    page.get_by_role("button", name="Submit").click()

    run_id = wait_for(
        lambda: next(
            (
                r["run_id"]
                for r in process_site.json("runs", "--members")
                if r["run_id"] not in before
            ),
            None,
        ),
        lambda: f"no run was made; the page says {page.inner_text('body')[-500:]}",
    )
    page.goto(f"{process_site.url}/runs/flow-run/{run_id}")
    page.get_by_text("Completed", exact=True).first.wait_for(timeout=90_000)
    assert process_site.show(run_id)["job"]["name"] == "from-the-form"

    # The log lines of the program, and how it ended.
    see(page, "accuracy")
    see(page, "done, .*host peak .*outputs in")

    # The five steps, then what was measured.
    page.get_by_text("Task Runs", exact=True).first.click()
    for step in ("stage_data", "admit", "train", "update_estimates", "clean_up"):
        page.get_by_text(step, exact=True).first.wait_for()
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("predicted-and-measured", exact=True).last.wait_for()
    page.get_by_text("predicted-and-measured", exact=True).last.click()
    for row in ("run time of the program", "host memory peak", COST):
        page.get_by_text(row, exact=True).first.wait_for()

    # A week later: the whole story, rendered, and the same that `headway show` tells.
    page.goto(f"{process_site.url}/runs/flow-run/{run_id}")
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("story", exact=True).last.click()
    for title in ("Asked for", "Attempt 1", "Attempt 1: predicted and measured", "Left behind"):
        page.get_by_role("heading", name=title, exact=True).wait_for()
    for told in ("it ended well, with exit 0", "lease \\d+ on test-node, ", "attempt-1\\.log$"):
        page.get_by_role("listitem").filter(has_text=re.compile(told)).first.wait_for()
    page.get_by_role("cell", name="host memory peak").wait_for()
    assert "it ended well, with exit 0" in process_site.run("show", run_id).stdout
    page.screenshot(path=tmp_path / "story.png", full_page=True)


def test_a_waiting_run_says_why_on_its_page(page, process_site: LiveSite, tmp_path: Path) -> None:
    sign_in(page, process_site)
    usable_bytes = process_site.json("nodes")[0]["host_memory_bytes"]
    half = {"host_memory": f"{round(usable_bytes * 0.55)}B", "cpus": 0.1}
    running = process_site.submit(
        tmp_path,
        name="large",
        command=["python", "-c", "import time; print(1, flush=True); time.sleep(120)"],
        resources=half,
    )
    process_site.until(running, "Running")
    waiting = process_site.submit(tmp_path, name="too-large-for-now", resources=half)
    try:
        process_site.until(waiting, "AwaitingHeadroom")
        page.goto(f"{process_site.url}/runs/flow-run/{waiting}")
        page.get_by_text("AwaitingHeadroom", exact=True).first.wait_for()
        # Its log has nothing else yet.
        page.get_by_text(re.compile("^waits: needs .* of host memory; at most")).first.wait_for()
        page.get_by_text("Details", exact=True).first.click()
        page.get_by_text(re.compile("of host memory; at most")).first.wait_for()
    finally:
        process_site.run("cancel", waiting)
        process_site.run("cancel", running)
        process_site.until(running, "Cancelled")
        process_site.until(waiting, "Cancelled")
