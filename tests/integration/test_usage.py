"""Usage from a real ledger to whom the gateway answers, and as the command prints it."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.errors import InvalidInput
from headway.ledger import Ledger
from headway.ledger.tables import AttemptRow, LeaseRow
from headway.model.lease import Demand
from headway.model.node import Capacity, Gpu, Node
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.telemetry import TelemetryPoint
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from headway.views.tables import COLUMNS, usage_csv
from headway.views.usage import month_of, usage_document, usage_of
from tests.support.api import MEMBER, bearer, serving
from tests.support.leading import grant_in_term
from tests.support.site import within_this_process

NOON, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2900, 1, 1, tzinfo=UTC)
OURS, THEIRS, FORMULA = "vision", "speech", "=HYPERLINK(1)"


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    settings = Settings(home=tmp_path, ledger_url=SecretStr(ledger_url), runtime="process")
    made = Site(settings, SystemClock(), Ledger.open)
    gpus = tuple(Gpu(f"GPU-{n}", n, "A100", 40 * GIB) for n in range(2))
    node = Node("node-a", "gpu", Capacity(8.0, 64 * GIB, gpus), gpu_price_per_hour=3.0)
    made.ledger.nodes.register(node, boot_id="boot", worker_token="worker")
    hold(made, "r1", "ada", OURS, ended=True)
    hold(made, "r2", "eve", THEIRS, ended=False)
    yield made
    made.ledger.close()


def hold(site: Site, run_id: str, user: str, team: str, *, ended: bool) -> None:
    """A run that has held a GPU for two hours, half of that before its program began."""
    ledger = site.ledger
    ledger.runs.enqueue(
        run_id, {"name": "digits"}, name="digits", owner=user, team=team, pool="gpu", priority=0,
        submitted_at=NOON,
    )  # fmt: skip
    demand = Demand(8 * GIB, gpus=1, gpu_memory_bytes=10 * GIB)
    lease = grant_in_term(ledger, run_id, "node-a", demand, ttl_s=900.0)
    ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    with ledger._database.transaction() as session:
        row = session.get(LeaseRow, lease.lease_id)
        assert row is not None
        row.granted_at -= timedelta(hours=2)
    if ended:
        used = Measurement(runtime_s=3600.0, gpu_utilisation_frac=0.5, host_peak_bytes=2 * GIB)
        ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, ""), used)
        ledger.leases.release(lease.fence)


def test_what_was_held(site: Site) -> None:
    now, ledger = site.ledger.now(), site.ledger
    since = now - timedelta(days=1)
    held = ledger.holdings.between(since, now, team=OURS)
    (row,) = usage_of(held, ledger.holdings.nodes(), since, now)
    assert (row.team, row.user, row.runs) == (OURS, "ada", {"r1"})
    # Two hours of a quarter of a GPU: all of it before its program, which ran for no time.
    assert row.gpu_hours == pytest.approx(0.5, abs=0.05)
    assert row.idle_gpu_hours == pytest.approx(0.5, abs=0.05)
    assert row.unused_gib_hours == pytest.approx(12.0, abs=1.0)
    assert row.cost == pytest.approx(1.5, abs=0.15)
    assert ledger.holdings.between(since, now, user="eve", team=OURS) == []
    assert ledger.holdings.between(since - timedelta(days=9), since) == []


def test_of_a_run_under_way_counts_what_its_gpus_did_so_far(site: Site) -> None:
    ledger = site.ledger
    (held,) = ledger.holdings.between(NOON, LATE, team=THEIRS)
    with ledger._database.transaction() as session:
        attempt = session.get(AttemptRow, ("r2", 1))
        assert attempt is not None
        attempt.started_at = held.began_at
    (gpu,), other = held.gpus, {"r2": 1, "r1": 1}

    def usage() -> tuple[float, float]:
        month = held.began_at.strftime("%Y-%m")
        (row,) = usage_document(site, team=THEIRS, user=None, month=month)["rows"]
        return row["idle_gpu_hours"], row["unmeasured_gpu_hours"]

    idle, unmeasured = usage()
    assert (idle, unmeasured > 0) == (0.0, True)
    ledger.telemetry.append(
        "node-a",
        [
            TelemetryPoint(NOON, gpu.uuid, 60, busy_frac=0.2, run_bytes={"r2": 1}),
            TelemetryPoint(NOON, gpu.uuid, 60, busy_frac=0.4, run_bytes={"r2": 2}),
            # Nobody knows whose kernels ran here, and this is before its program.
            TelemetryPoint(NOON, gpu.uuid, 60, busy_frac=1.0, run_bytes=other),
            TelemetryPoint(NOON, "GPU-other", 60, busy_frac=1.0, run_bytes={"r2": 1}),
            TelemetryPoint(
                NOON - timedelta(hours=3), gpu.uuid, 60, busy_frac=1.0, run_bytes={"r2": 1}
            ),
        ],
    )
    assert usage() == (pytest.approx(0.7 * unmeasured, abs=0.01), 0.0)


def test_who_sees_what(site: Site) -> None:
    (began,) = {each.began_at for each in site.ledger.holdings.between(NOON, LATE, team=OURS)}
    month = began.strftime("%Y-%m")
    with serving(site) as url, httpx.Client(base_url=f"{url}/v1", timeout=60) as client:
        ada, root = bearer(site, "ada", OURS, MEMBER), bearer(site)

        def asked(headers: dict[str, str], **query: str) -> httpx.Response:
            return client.get("/usage", headers=headers, params=query)

        own = asked(ada, month=month).json()
        (row,) = own["rows"]
        assert (row["team"], row["user"], row["runs"]) == (OURS, "ada", 1)
        assert own["total"]["gpu_hours"] == row["gpu_hours"]
        assert asked(ada, team=THEIRS).status_code == 403
        assert asked(ada, user="eve", month=month).json()["rows"] == []
        every = asked(root, month=month).json()["rows"]
        assert [(each["team"], each["user"]) for each in every] == [(THEIRS, "eve"), (OURS, "ada")]
        theirs = asked(root, team=THEIRS, month=month).json()["rows"]
        assert [each["team"] for each in theirs] == [THEIRS]
        assert asked(root, month="1999-01").json()["rows"] == []
        for wrong in ("2026-13", "november", "2026-1"):
            answer = asked(root, month=wrong)
            assert answer.status_code == 422, answer.text
        assert client.get("/usage?team=%00", headers=root).status_code == 422
        # The command asks the same gateway.
        token = root["Authorization"].removeprefix("Bearer ")
        env = {"HEADWAY_URL": url, "HEADWAY_TOKEN": token, "HEADWAY_HOME": str(site.settings.home)}
        told = within_this_process(["usage", "--month", month], env)
        assert told.returncode == 0, told.stderr
        assert [line.split()[0] for line in told.stdout.splitlines()] == [
            "team", THEIRS, OURS, "all"
        ]  # fmt: skip
        words = ["usage", "--csv", "--month", month]
        rows = list(csv.DictReader(io.StringIO(within_this_process(words, env).stdout)))
        assert [row["team"] for row in rows] == [THEIRS, OURS]


def test_a_name_is_no_formula_to_a_program_that_opens_the_table() -> None:
    row = dict.fromkeys(COLUMNS, 0) | {"team": FORMULA, "user": "ada"}
    (read,) = csv.DictReader(io.StringIO(usage_csv([row])))
    assert read["team"] == f"'{FORMULA}"


def test_a_month_ends_where_the_next_begins() -> None:
    assert month_of("2026-12", NOON) == (
        datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    )  # fmt: skip
    assert month_of(None, NOON)[0] == NOON
    with pytest.raises(InvalidInput, match="give a month such as"):
        month_of("2026-00", NOON)
