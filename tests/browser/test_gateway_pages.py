"""What a member of a team does in a browser: log in with a token, start a run, watch, cancel."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from headway.model.session import session_path
from tests.support.api import MEMBER, bearer, gateway_of
from tests.support.browser import arrive, see
from tests.support.site import LiveSite, sleeper, wait_for

pytestmark = pytest.mark.browser

FETCH = """async ([method, path]) => {
    const sent = method == 'GET' ? {method} : {
        method, body: '{}', headers: {'Content-Type': 'application/json'}}
    return (await fetch(path, sent)).status
}"""
"""Asks with the cookie of the login, as a script of the page would."""


@pytest.fixture
def door(process_site: LiveSite) -> Iterator[tuple[str, str]]:
    """Address of the gateway, and the token of a member of team vision."""
    with gateway_of(process_site) as (url, site):
        headers = bearer(site, "ada", "vision", MEMBER)
        yield url, headers["Authorization"].removeprefix("Bearer ")


def log_in(page, url: str, token: str) -> None:
    page.goto(f"{url}/headway")
    give(page, token)
    arrive(page, f"{url}/headway")


def give(page, token: str) -> None:
    arrive(page, "/v1/login")
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_login_leads_to_the_view_that_was_asked_for(door: tuple[str, str], page) -> None:
    url, token = door
    page.goto(f"{url}/headway?x=1#/runs?name=typed")
    give(page, "hwt_" + "x" * 43)
    page.get_by_text("That token is unknown").wait_for()
    give(page, token)
    arrive(page, re.escape(f"{url}/headway?x=1#/runs?name=typed"))
    page.context.clear_cookies()  # as when the token has ended
    page.reload()
    give(page, token)
    arrive(page, re.escape(f"{url}/headway?x=1#/runs?name=typed"))


def test_a_login_leads_to_the_page_of_a_session(
    page, process_site: LiveSite, tmp_path: Path
) -> None:
    serve = ["python", "-u", "-m", "samples.session.serve"]
    run = process_site.submit(tmp_path, name="notes", command=serve, session={"idle": "10min"})
    process_site.until(run, "Running")
    token = (process_site.home / "token").read_text().strip()
    shown = f"http://127.0.0.1:{process_site.env['HEADWAY_SESSIONS_PORT']}{session_path(run)}"
    served = {"Authorization": f"Bearer {token}"}
    wait_for(lambda: httpx.get(shown, headers=served).status_code == 200, process_site.worker_log)
    for link in (process_site.show(run)["session"], shown):
        page.goto(link)
        give(page, token)
        arrive(page, f"^{shown}$")
        page.context.clear_cookies()
    process_site.run("cancel", run)


def test_the_page_says_who_one_is_and_forgets_it(door: tuple[str, str], page) -> None:
    url, token = door
    log_in(page, url, token)
    expect(page.get_by_text("ada, vision", exact=True)).to_be_visible()
    with page.expect_popup() as prefects:
        page.get_by_role("link", name="Prefect", exact=True).click()
    prefects.value.close()
    page.get_by_role("button", name="Log out").click()
    arrive(page, "/v1/login")
    page.goto(f"{url}/headway")
    arrive(page, "/v1/login")


def test_a_member_hands_in_a_job_and_an_array_like_it_on_the_sites_own_page(
    door: tuple[str, str], page, process_site: LiveSite
) -> None:
    url, token = door
    log_in(page, url, token)
    page.get_by_role("link", name="New job").click()
    told = page.get_by_role("status", name="What it would take")
    for label, text in (
        ("Name", "typed"),
        ("or Python", "3"),
        ("Command", "sh -c 'echo loss={n}'"),
    ):
        page.get_by_label(label, exact=True).fill(text)
    expect(told).to_contain_text("at once, on test-node")
    expect(told).to_contain_text("not known before its first run")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="typed").wait_for()
    run = page.url.rpartition("/")[2]
    see(page, "loss=")
    expect(page.get_by_role("heading", name=re.compile("typed.*Completed"))).to_be_visible()
    assert process_site.show(run)["owner"] == "ada"

    page.get_by_role("link", name="A new job like it").click()
    page.get_by_label("Many runs").fill("n=1..3")
    expect(told).to_contain_text("3 runs; of the first:")
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Of 3 members 3 ended well").wait_for()


def test_a_member_starts_a_run_by_the_form_and_watches_its_own_alone(
    door: tuple[str, str],  # before the page, which asks until its tab is closed
    page,
    process_site: LiveSite,
    tmp_path: Path,
) -> None:
    url, token = door
    theirs = process_site.submit(tmp_path, name="canary-of-speech", team="speech")
    asked: set[tuple[int, str]] = set()
    page.on("response", lambda seen: asked.add((seen.status, f"{seen.request.method} {seen.url}")))
    log_in(page, url, token)
    assert page.evaluate("document.cookie").count("hwt_") == 0

    page.goto(f"{url}/deployments")
    page.get_by_role("link", name="default", exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("Hard limit, such as 8GiB").wait_for()
    name = page.locator("textarea").first
    expect(name).to_have_value("digits")
    name.fill("by-ada")
    with page.expect_response(re.compile("create_flow_run")) as made:
        page.get_by_role("button", name="Submit").click()
    assert made.value.status == 200, made.value.text()
    run = made.value.json()["id"]
    page.goto(f"{url}/runs/flow-run/{run}")
    page.get_by_text("Completed", exact=True).first.wait_for(timeout=90_000)
    see(page, "accuracy")
    assert process_site.show(run)["owner"] == "ada"

    page.goto(f"{url}/runs")
    page.get_by_text("by-ada").first.wait_for()
    assert page.get_by_text("canary-of-speech").count() == 0
    with page.expect_response(re.compile(f"flow_runs/{theirs}$")) as hidden:
        page.goto(f"{url}/runs/flow-run/{theirs}")
    assert hidden.value.status == 404
    assert "canary" not in page.content()
    # Nothing that these pages need is refused; what was refused has its reason here.
    refused = {call for status, call in asked if status == 403}
    assert {call for call in refused if not call.endswith(("/admin/version",))} == set()
    assert {status for status, _ in asked if status >= 500} == set()


def test_a_member_cancels_its_own_run_and_reaches_nothing_of_the_operators(
    door: tuple[str, str], page, process_site: LiveSite
) -> None:
    url, token = door
    block = process_site.call("GET", "block_types/slug/headway-line/block_documents/name/site")
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx.post(f"{url}/v1/runs", headers=headers, json={"job": sleeper(1200)}, timeout=60)
    run = made.json()["run_id"]
    log_in(page, url, token)
    for method, path in (
        ("GET", f"block_documents/{block['id']}"), ("PATCH", f"block_documents/{block['id']}"),
        ("POST", "block_documents/"), ("POST", "deployments/"), ("POST", "flows/"),
        ("GET", "admin/version"), ("POST", "admin/database/clear"), ("DELETE", "work_pools/gpu"),
    ):  # fmt: skip
        assert page.evaluate(FETCH, [method, f"/api/{path}"]) == 403, path
    page.goto(f"{url}/blocks")
    page.get_by_text("Blocks", exact=True).first.wait_for()
    assert page.get_by_text("headway-line").count() == 0

    page.goto(f"{url}/runs/flow-run/{run}")
    page.get_by_text("Running", exact=True).first.wait_for(timeout=90_000)
    page.get_by_role("button", name="Cancel", exact=True).first.click()
    page.get_by_role("button", name="Confirm").click()
    process_site.until(run, "Cancelled")
    page.goto(f"{url}/runs/flow-run/{run}")
    page.get_by_text("Cancelled", exact=True).first.wait_for()
    assert "cancelled by user ada" in process_site.show(run)["exit"]["message"]
