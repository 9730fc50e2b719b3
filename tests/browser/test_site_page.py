"""The page of the site in a real browser, beside a ledger that has seen everything once."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from headway.model.array import Array
from headway.model.job_text import read_job
from headway.model.node import Capacity, Gpu, GpuReading, HostReading, Node, NodeReading
from headway.model.trace import Trace
from headway.site import Site
from headway.units import GIB, format_duration
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.lived_in import ENDED, NODE, RUNNING, begin, populate
from tests.support.on_ledger import enqueue

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
VIEWS = (
    "#/",
    "#/runs",
    f"#/runs/{RUNNING}",
    f"#/runs/{ENDED}",
    "#/runs/w1",
    "#/arrays/sweep",
    "#/new",
    "#/new/w5",
    f"#/compare?runs={RUNNING},{ENDED}",
    "#/usage",
)
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = site_in(tmp_path_factory.mktemp("site"))
    populate(site.ledger)
    for each in site.ledger.nodes.all():
        priced = replace(each.node, gpu_price_per_hour=2.0)
        site.ledger.nodes.register(priced, boot_id="boot", worker_token=each.node.name)
        assert each.reading is not None
        site.ledger.nodes.heartbeat(each.node.name, each.node.name, each.reading)
    eight(site)
    job = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
    for run_id, name, team in (("w3", HOSTILE, "t"), ("w4", "canary", "others")):
        enqueue(site.ledger, run_id, job, name=name, team=team, submitted_at=site.ledger.now())
    sweep(site)
    training = {"network": "resnet50", "batch_size": 32}
    trained = {**job, "resources": {"gpus": 1}, "training": training}
    enqueue(site.ledger, "w5", trained, name="trained", team="t", submitted_at=site.ledger.now())
    site.ledger.traces.add(
        Trace("resnet50", "v100", gpus, 32, runtime_s=took_s, run_id=f"known-{gpus}")
        for gpus, took_s in ((1, 3600.0), (2, 1900.0))
    )
    yield site
    site.ledger.close()


def eight(site: Site) -> None:
    """A node of eight GPUs, one of them lost, in a pool of its own."""
    gpus = tuple(Gpu(f"GPU-8-{n}", n, "H100", 80 * GIB) for n in range(8))
    read = tuple(GpuReading(g.uuid, g.index, g.name, g.memory_bytes, 0, 0.0) for g in gpus[:7])
    host = HostReading(512 * GIB, 4 * GIB, 0.1, 100 * GIB)
    seen = NodeReading(site.ledger.now(), host, read, lost_gpus={"GPU-8-7": "NVML error 15"})
    node = Node("node-8", "large", Capacity(64.0, 512 * GIB, gpus), gpu_price_per_hour=4.0)
    site.ledger.nodes.register(node, boot_id="boot", worker_token="node-8")
    assert site.ledger.nodes.heartbeat("node-8", "node-8", seen)


def sweep(site: Site) -> None:
    """An array of three: one has ended well, one runs, one waits; others' beside it."""
    job = {"name": "sweep", "image": "trainer:1", "command": ["train", "{lr}"]}
    lr = {"lr": (0.1, 0.2, 0.3)}
    for name, team in (("sweep", "t"), ("canary-sweep", "others")):
        made = site.ledger.arrays.add(
            job, Array(lr), name=name, owner="me", team=team, pool="gpu", queue="default",
            key=None, submitted_at=site.ledger.now(),
        )  # fmt: skip
        if team != "t":
            continue
        for index in (1, 2):
            run_id = f"member-{index}"
            site.ledger.arrays.join(made.array_id, index, run_id)
            begin(site.ledger, run_id, [{"loss": index / n, "accuracy": n / 9} for n in (1, 2, 4)])


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    with serving(site) as url:
        yield url


@pytest.fixture
def opened(browser: Browser, site: Site, url: str) -> Iterator[Open]:
    """Opens a view as a member of team t in a tab of its own, so wide and so dark."""
    token = bearer(site, "me", "t", MEMBER)["Authorization"].removeprefix("Bearer ")
    contexts: list[BrowserContext] = []

    def open_(view: str = "#/", *, width: int = 1400, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.add_cookies([{"name": "headway_token", "value": token, "url": url}])
        tab = context.new_page()
        tab.set_default_timeout(120_000)  # as in the other tests of pages: a machine may be busy
        tab.goto(f"{url}/headway{view}")
        tab.locator("main h2").first.wait_for()
        return tab

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_everybody_can_read_every_view(opened: Open, width: int, scheme: str) -> None:
    tab = opened(width=width, scheme=scheme)
    broken: list[str] = []
    tab.on("pageerror", lambda error: broken.append(str(error)))
    for view in VIEWS:
        tab.goto(tab.url.partition("#")[0] + view)
        tab.reload()
        tab.locator("main h2").first.wait_for()
        found = Axe().run(tab)
        assert found.response["violations"] == [], (view, found.generate_report())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, view
        assert tab.evaluate(_CUT_OFF) == [], view
    assert broken == []


_CUT_OFF = """[...document.querySelectorAll(".scroll")]
    .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)"""


def test_on_a_telephone_a_row_is_a_card_and_still_a_row(opened: Open) -> None:
    tab = opened("#/runs?mine=false", width=390)
    table = tab.get_by_role("table", name="Runs")
    row = table.get_by_role("row").filter(has=tab.get_by_role("rowheader", name="brave-e2"))
    expect(row).to_be_visible()
    assert table.get_by_role("columnheader").count() == row.get_by_role("cell").count() + 1
    state = row.get_by_role("cell", name="Completed", exact=True)
    expect(state).to_have_attribute("data-label", "state")  # which the style sheet shows
    assert state.bounding_box()["y"] > row.get_by_role("rowheader").bounding_box()["y"]


def test_epochs_that_came_at_one_time_are_laid_side_by_side(opened: Open) -> None:
    """They stood above each other: a line that falls and rises at one place."""
    drawn = opened().evaluate(
        """async () => {
            const { curve, series } = await import("/headway/draw.js");
            const told = [[4, 2, 1], [2, 2, 3], [3, 2, 2], [1, 1, 4]];
            const points = told.map(([epoch, t_s, loss]) => ({ epoch, t_s, metrics: { loss } }));
            const line = curve("loss", series(points, "loss")).querySelector("polyline");
            return line.getAttribute("points");
        }"""
    )
    at = [tuple(map(float, each.split(","))) for each in drawn.split(" ")]
    assert len(at) == 4
    for axis in (0, 1):  # to the right, and as the losses fall, down
        assert [each[axis] for each in at] == sorted({each[axis] for each in at})


def test_a_duration_is_written_as_by_the_command_line(opened: Open) -> None:
    spans = [0.0, 0.4, 9.94, 9.95, 38.0, 59.6, 120.0, 3599.7, 3600.0, 86_399.6, 86_400.0, 1e5, 5e6]
    told = opened().evaluate(
        """async (spans) => {
            const { duration } = await import("/headway/words.js");
            return spans.map(duration);
        }""",
        spans,
    )
    assert told == [format_duration(each) for each in spans]


def test_the_site_is_shown_as_it_is(opened: Open) -> None:
    tab = opened()
    node = tab.get_by_role("region", name=f"Node {NODE}")
    expect(node).to_contain_text("3.0 GiB of 16 GiB promised, 2.0 GiB in use; busy 50 %")
    expect(tab.get_by_role("region", name="Node node-b")).to_contain_text(
        "gpu2 V100 is lost: NVML error 15"
    )
    running = tab.get_by_role("table", name="Running")
    expect(running).to_contain_text(f"brave-{RUNNING}")
    expect(running).to_contain_text("gpu_unused: it idles")
    expect(tab.get_by_role("table", name="Waiting")).to_contain_text("brave-w1")


def test_many_gpus_are_cells_and_each_is_told_where_one_asks(opened: Open) -> None:
    node = opened().get_by_role("region", name="Node node-8")
    expect(node.get_by_role("img", name=re.compile("^gpu[0-7] H100"))).to_have_count(8)
    expect(node).to_contain_text("gpu7 H100 is lost: NVML error 15")
    each = node.locator(".told", has_text="0 B of 80 GiB promised")
    expect(each.first).to_be_hidden()
    node.get_by_text("7 GPUs, 7 promised to nobody").click()
    expect(each).to_have_count(7)
    node.page.wait_for_timeout(6_000)  # drawn anew meanwhile
    expect(each.first).to_be_visible()


def test_a_waiting_run_says_who_is_ahead_and_what_would_help(opened: Open) -> None:
    main = opened("#/runs/w1").locator("main")
    expect(main.get_by_role("heading", name="Why it waits")).to_be_visible()
    for title, words in (
        ("Who is ahead", "Nobody is ahead of it."),
        ("What would help", "No single change of what it asks"),
    ):
        below = main.get_by_role("heading", name=title).locator("+ *")
        expect(below).to_contain_text(words)


def test_a_run_shows_the_ways_to_run_it_by_time_and_cost_and_what_more_gpus_gain(
    opened: Open,
) -> None:
    tab = opened("#/runs/w5")
    main = tab.locator("main")
    main.get_by_role("button", name="Compare time and cost").click()
    table = main.get_by_role("table", name="Ways to run it")
    table.wait_for()  # a busy machine takes its time
    said = tab.evaluate("fetch('/v1/runs/w5/ways').then((answer) => answer.json())")["options"]
    assert sum(each["chosen"] for each in said) == 1
    expect(table.get_by_role("row")).to_have_count(1 + len(said))
    for picture, key in (
        ("Cost (site's currency) over the time until its end", "runtime_s"),
        ("Times as fast as one GPU", "speed_up"),
    ):
        shown = sum(each[key] is not None for each in said)
        assert shown >= 2
        expect(main.get_by_role("img", name=picture).locator("circle")).to_have_count(shown)
    assert Axe().run(tab).response["violations"] == []
    tab.reload()
    main.get_by_role("button", name="Compare time and cost").wait_for()


def test_the_keyboard_leads_to_a_run_and_its_curve(opened: Open) -> None:
    tab = opened()
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to the content")).to_be_focused()
    link = tab.get_by_role("table", name="Running").get_by_role("link", name=f"brave-{RUNNING}")
    for _ in range(30):
        if link.evaluate("each => each === document.activeElement"):
            break
        tab.keyboard.press("Tab")
    expect(link).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name=f"brave-{RUNNING} Running")).to_be_visible()
    expect(tab.get_by_role("img", name="loss: from 1 to 0.2")).to_be_visible()
    expect(tab.locator("main")).to_be_focused()


def test_what_is_focused_stays_so_when_the_view_is_drawn_anew(opened: Open) -> None:
    tab = opened()
    link = tab.get_by_role("table", name="Running").get_by_role("link", name=f"brave-{RUNNING}")
    link.focus()
    before = link.element_handle()
    tab.wait_for_function("old => !old.isConnected", arg=before)
    expect(link).to_be_focused()


def test_names_are_text_and_other_teams_have_none(opened: Open) -> None:
    tab = opened()
    asked: list[str] = []
    tab.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    waiting = tab.get_by_role("table", name="Waiting")
    expect(waiting).to_contain_text(HOSTILE)
    expect(waiting).to_contain_text("of another team")
    assert tab.locator("main img").count() == 0
    assert "canary" not in tab.content()
    assert asked == []


def test_an_array_is_shown_by_the_curves_of_its_members(opened: Open) -> None:
    tab = opened("#/runs")
    arrays = tab.get_by_role("table", name="Arrays")
    expect(arrays).to_contain_text("1 wait, 2 run")
    assert "canary" not in tab.content()
    arrays.get_by_role("link", name="sweep").click()
    expect(tab.get_by_role("img", name="loss of lr=0.2: from 2 to 0.5")).to_be_visible()
    expect(tab.get_by_text("all from 0.25 to 2 and over")).to_be_visible()
    expect(tab.get_by_role("table", name="Members")).to_contain_text("sweep-1")
    tab.get_by_role("button", name="accuracy").focus()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("img", name="accuracy of lr=0.1: from 0.1111 to 0.4444")).to_be_visible()
    expect(tab.get_by_role("button", name="accuracy")).to_be_focused()
    found = Axe().run(tab)
    assert found.response["violations"] == [], found.generate_report()
    tab.get_by_role("list").get_by_role("link", name="lr=0.1").click()
    expect(tab.get_by_role("heading", name="sweep-1 Running")).to_be_visible()


def test_what_cannot_be_read_is_said_and_not_called_empty(opened: Open) -> None:
    """The node of this ledger has no worker that serves files."""
    tab = opened(f"#/runs/{ENDED}")
    expect(tab.locator("main")).to_contain_text("does not hand out its files")
    expect(tab.locator("main")).not_to_contain_text("It has written none")
    expect(tab.get_by_role("table", name="Predicted and measured")).to_contain_text("3.0 GiB")
    stands = tab.locator("main p.soft").first
    expect(stands).to_contain_text(
        re.compile(r"; waited [\d.]+ s; ran for [\d.]+ s \(the whole attempt\)")
    )


def test_a_gateway_that_is_gone_is_told(opened: Open) -> None:
    tab = opened()
    expect(tab.get_by_role("status")).to_have_text("live")
    tab.context.set_offline(True)
    tab.clock.set_fixed_time(datetime.now(UTC) + timedelta(seconds=30))
    expect(tab.get_by_role("status")).to_contain_text("not up to date")
    expect(tab.get_by_role("table", name="Running")).to_be_visible()
    tab.context.set_offline(False)
    expect(tab.get_by_role("status")).to_have_text("live", timeout=30_000)


def test_a_page_costs_less_than_200_kilobytes(opened: Open) -> None:
    tab = opened()
    sent = tab.evaluate(
        "performance.getEntries().reduce((sum, each) => sum + (each.transferSize ?? 0), 0)"
    )
    assert 20_000 < sent < 200_000


def test_a_new_job_says_what_it_would_take_while_it_is_typed(opened: Open) -> None:
    tab = opened("#/new")
    told = tab.get_by_role("status", name="What it would take")
    expect(told).to_contain_text("told here while you type")
    for label, text in (
        ("Name", "mine"),
        ("Image", "python:3.11"),
        ("Command", "python 'a b.py' {lr}"),
    ):
        tab.get_by_label(label, exact=True).fill(text)
    tab.get_by_label("GPUs", exact=True).fill("many")
    expect(told).to_contain_text('resources.gpus: got "many"; give a whole number')
    expect(tab.get_by_label("GPUs", exact=True)).to_have_attribute("aria-invalid", "true")
    tab.get_by_label("GPUs", exact=True).fill("1")
    ways = told.get_by_role("table", name="Ways to run it")
    expect(ways).to_contain_text("1 × v100")
    expect(ways).to_contain_text(re.compile("guess: 1 h"))
    expect(ways).to_contain_text("guess: 2.00")
    assert tab.locator("[aria-invalid]").count() == 0
    tab.get_by_label("Many runs").fill("lr=0.1,0.01\nseed=1..3")
    expect(told).to_contain_text("6 runs; of the first:")
    expect(told).to_contain_text("{seed} is not in the command")
    tab.get_by_label("Budget").fill("abc")
    expect(told).to_contain_text('budget: got "abc"; give a number')
    tab.get_by_label("Budget").fill("1000")
    expect(told).to_contain_text(re.compile("([1-9]) of \\1 ways keep to budget and deadline"))
    tab.get_by_label("Budget").fill("0.01")
    expect(told).to_contain_text(re.compile("0 of [1-9] ways keep to budget and deadline"))
    with tab.expect_download() as saved:
        tab.get_by_role("button", name="Save as a job file").click()
    text = saved.value.path().read_text()
    read = read_job(text)
    assert read.job.command == ["python", "a b.py", "{lr}"]
    assert read.array is not None
    assert read.array.size == 6


def test_a_new_job_begins_as_an_earlier_run_or_as_a_file(opened: Open, tmp_path: Path) -> None:
    tab = opened("#/runs/w5")
    tab.get_by_role("link", name="A new job like it").click()
    text = tab.get_by_label("Text of the job file")
    expect(text).to_have_value(re.compile("network: resnet50"))
    assert "owner" not in text.input_value()
    expect(tab.get_by_label("Command", exact=True)).to_have_attribute(
        "placeholder", "python train.py"
    )
    tab.get_by_label("Epochs").fill("7")
    tab.get_by_role("link", name="Usage").click()
    tab.get_by_role("heading", name="Usage since").wait_for()
    tab.go_back()
    expect(tab.get_by_label("Epochs")).to_have_value("7")  # what was typed is kept
    command = tab.get_by_label("Command", exact=True)
    command.focus()  # what the text says can be changed there
    expect(command).to_have_value("python train.py")
    command.press_sequentially(" '")
    expect(tab.get_by_role("status", name="What it would take")).to_contain_text("close its quotes")
    command.press_sequentially("a b'")
    (tmp_path / "job.yaml").write_text("name: of-a-file\nimage: [\n")
    tab.get_by_label("Job file", exact=True).set_input_files(tmp_path / "job.yaml")
    told = tab.get_by_role("status", name="What it would take")
    expect(told).to_contain_text("job file:2")
    text.fill(f"name: of-a-file\nimage: '{HOSTILE}'\ncommand: [a]\n")
    expect(told).to_contain_text("image")
    assert tab.locator("img").count() == 0


def test_runs_are_found_by_name_and_state_and_the_address_keeps_that(opened: Open) -> None:
    tab = opened("#/runs?mine=false")
    listed = tab.get_by_role("table", name="Runs")
    expect(listed).to_contain_text("trained")
    tab.get_by_label("Name contains").press_sequentially("train", delay=50)
    expect(tab).to_have_url(re.compile(r"#/runs\?mine=false&name=train$"))
    expect(listed.get_by_role("row")).to_have_count(2)
    expect(tab.get_by_label("Name contains")).to_be_focused()
    tab.wait_for_timeout(6_000)  # drawn anew meanwhile
    expect(tab.get_by_label("Name contains")).to_have_value("train")
    tab.get_by_label("State").select_option("Failed")
    expect(tab.locator("main")).to_contain_text("No run is like that.")
    tab.reload()
    expect(tab.get_by_label("State")).to_have_value("Failed")


def test_runs_are_compared_in_one_picture(opened: Open) -> None:
    tab = opened("#/runs?mine=false")
    for run in (RUNNING, ENDED):
        tab.locator(f"#compare-{run}").check()
    tab.get_by_role("link", name="Compare 2 runs").click()
    table = tab.get_by_role("table", name="Runs compared")
    for row in ("state", "took", "host memory, peak", "loss, last"):
        expect(table.get_by_role("rowheader", name=row, exact=True)).to_be_visible()
    assert table.get_by_role("columnheader").count() == 3
    expect(tab.get_by_role("img", name=re.compile("loss|brave")).first).to_be_visible()
