"""Every query of every dashboard gives rows, from a real Prometheus and a real PostgreSQL."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.settings import Settings
from headway.site import Site
from tests.support import postgresql as databases
from tests.support.api import bearer, serving
from tests.support.lived_in import ENDED, NODE, RUNNING, populate
from tests.support.prometheus import query, scraping, until, why_none

pytestmark = [pytest.mark.prometheus, pytest.mark.postgresql]

FOLDER = Path(__file__).parents[2] / "deployments/grafana"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))


def panels(kind: str) -> list[Any]:
    """Each panel that asks data sources of this kind, for `pytest.mark.parametrize`."""
    return [
        pytest.param(panel, id=f"{file.stem}: {panel['title']}")
        for file in FILES
        for panel in json.loads(file.read_text())["panels"]
        if panel["datasource"]["type"] == kind
    ]


@pytest.fixture(scope="module")
def site(postgresql: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url = SecretStr(databases.new_database(postgresql))
    home = tmp_path_factory.mktemp("home")
    made = Site(Settings(home=home, ledger_url=url, runtime="process"), SystemClock())
    populate(made.ledger)
    with psycopg.connect(url.get_secret_value()) as owner:
        owner.execute((FOLDER / "reader.sql").read_bytes())
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def reader(site: Site) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """The ledger as Grafana reads it: by the role that is shipped for it."""
    url = site.settings.ledger_url.get_secret_value().replace("headway@", "headway_grafana@")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture(scope="module")
def prometheus(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """It has scraped the site twice and evaluated its rules."""
    if reason := why_none():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(site) as url, scraping(url, bearer(site), folder) as client:
        until(lambda: bool(query(client, 'ALERTS{alertstate="firing"}')))
        until(lambda: bool(query(client, "count_over_time(headway_traces[1m]) > 1")))
        yield client


def shown_columns(panel: dict[str, Any]) -> set[str]:
    """The columns that a table picks."""
    for each in panel["transformations"]:
        if each["id"] == "filterFieldsByName":
            return set(each["options"]["include"]["names"])
    raise AssertionError("a table shows every column")


def filled_in(sql: str, run: str) -> bytes:
    """A query as Grafana sends it."""
    sql = sql.replace("${run:sqlstring}", f"'{run}'")
    # As Grafana does it: the expression in brackets ends at the first that closes.
    within = r"\1 BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'"
    sql = re.sub(r"\$__timeFilter\(([^)]*)\)", within, sql)
    assert "$" not in sql
    return sql.encode()


def rows_of(prometheus: httpx.Client, asked: str, *, range_: bool) -> list[dict[str, Any]]:
    """What Prometheus has; after a scrape that took too long it has nothing until the next."""
    found: list[dict[str, Any]] = []

    def some() -> bool:
        span = {}
        if range_:
            now = float(query(prometheus, "time()")[1])
            span = {"start": now - 60, "end": now, "step": 1.0}
        found[:] = query(prometheus, asked, **span)
        return bool(found)

    until(some, what=f"rows of {asked}")
    return found


@pytest.mark.parametrize("panel", panels("prometheus"))
def test_prometheus_knows_what_a_panel_asks(
    prometheus: httpx.Client, panel: dict[str, Any]
) -> None:
    columns: set[str] = set()
    for target in panel["targets"]:
        asked = target["expr"].replace("$node", NODE).replace("$run", RUNNING)
        asked = asked.replace("$__range", "60s")
        assert "$" not in asked
        series = rows_of(prometheus, asked, range_=target["range"])
        values = [float(at[1]) for one in series for at in one.get("values", [one.get("value")])]
        assert all(math.isfinite(value) for value in values)
        for label in re.findall(r"{{(\w+)}}", target.get("legendFormat", "")):
            assert all(one["metric"].get(label) for one in series), f"no {label}: {asked}"
        value = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
        columns |= {value}.union(*(one["metric"] for one in series))
    if panel["type"] == "table":
        assert shown_columns(panel) <= columns


@pytest.mark.parametrize("run", [RUNNING, ENDED])
@pytest.mark.parametrize("panel", panels("grafana-postgresql-datasource"))
def test_the_ledger_knows_what_a_panel_asks(
    reader: psycopg.Connection[dict[str, Any]], panel: dict[str, Any], run: str
) -> None:
    for target in panel["targets"]:
        asked = filled_in(target["rawSql"], run)
        rows = reader.execute(asked).fetchall()
        assert rows, f"no rows: {asked!r}"
        if target["format"] == "time_series":
            assert all(row.pop("time").tzinfo for row in rows)
            numbers = [v for row in rows for k, v in row.items() if k != "metric"]
            assert len(numbers) == len(rows)
            assert all(isinstance(value, float) for value in numbers)
        else:
            assert shown_columns(panel) == set(rows[0])
            known = {name for row in rows for name, value in row.items() if value is not None}
            assert run == RUNNING or shown_columns(panel) == known


def test_the_choices_of_node_and_run_are_found(prometheus: httpx.Client) -> None:
    asked = {
        variable["name"]: variable
        for file in FILES
        for variable in json.loads(file.read_text())["templating"].get("list", [])
    }
    assert set(asked) == {"node", "run"}
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked["node"]["query"]).groups()
    found = prometheus.get(f"/api/v1/label/{label}/values", params={"match[]": metric}).json()
    assert found["data"] == ["node-a", "node-b"]
    inner = re.fullmatch(r"query_result\((.*)\)", asked["run"]["query"]).group(1)
    # As Grafana writes a row before it applies the variable's expression.
    [row] = query(prometheus, inner.replace("$__range", "60s"))
    line = "{" + ",".join(f' {k}="{v}"' for k, v in row["metric"].items()) + "} 1 1"
    pattern = asked["run"]["regex"].strip("/").replace("(?<", "(?P<")
    picked = re.search(pattern, line)
    assert picked is not None
    assert picked.groupdict() == {"text": f"brave-{RUNNING}", "value": RUNNING}


@pytest.mark.parametrize(
    "sql", ["SELECT token FROM lease", "SELECT job FROM run", "DELETE FROM run"]
)
def test_grafana_reads_no_token_and_no_job_and_changes_nothing(
    reader: psycopg.Connection[dict[str, Any]], sql: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute(sql.encode())


def test_both_sources_tell_the_same_of_the_estimates(
    prometheus: httpx.Client, reader: psycopg.Connection[dict[str, Any]]
) -> None:
    [panel] = [
        param.values[0]
        for param in panels("grafana-postgresql-datasource")
        if param.values[0]["title"] == "By what the prediction rested on"
    ]
    [row] = reader.execute(filled_in(panel["targets"][0]["rawSql"], ENDED)).fetchall()
    for column, metric in (
        ("runs", "headway_estimate_judged_runs"),
        ("mean error", "headway_estimate_runtime_error_ratio"),
        ("within the interval", "headway_estimate_interval_coverage_ratio"),
    ):
        [series] = query(prometheus, metric)
        assert float(series["value"][1]) == pytest.approx(row[column])
