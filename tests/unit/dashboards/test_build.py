"""The dashboards that are checked in are what the code builds, and hold together."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dashboards.build import FOLDER, files

BUILT = {name: json.loads(text) for name, text in files()}
EACH = pytest.mark.parametrize("dashboard", [pytest.param(d, id=n) for n, d in BUILT.items()])


def test_what_is_checked_in_is_what_is_built() -> None:
    checked_in = {file.name: file.read_text() for file in FOLDER.iterdir()}
    assert checked_in == dict(files()), "run python -m dashboards.build"
    assert set(BUILT) == {"site.json", "node.json", "run.json", "estimates.json"}


@EACH
def test_every_source_is_provisioned(dashboard: dict[str, Any]) -> None:
    folder = FOLDER.parent / "provisioning/datasources"
    [file] = folder.iterdir()
    sources = YAML(typ="safe").load(Path(file))["datasources"]
    known = {(source["type"], source["uid"]) for source in sources}
    for panel in dashboard["panels"]:
        for asking in (panel, *panel["targets"]):
            assert (asking["datasource"]["type"], asking["datasource"]["uid"]) in known
    for variable in dashboard["templating"].get("list", []):
        assert (variable["datasource"]["type"], variable["datasource"]["uid"]) in known


@EACH
def test_every_number_has_a_unit_and_every_line_a_name(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        if panel["type"] == "table":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        if panel["type"] == "timeseries":
            assert all(t.get("legendFormat") or t.get("rawSql") for t in panel["targets"])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@EACH
def test_panels_fill_rows_and_cover_none_another(dashboard: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    width: dict[int, int] = {}
    for place in places:
        width[place["y"]] = width.get(place["y"], 0) + place["w"]
    assert set(width.values()) == {24}
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_links_lead_to_dashboards_that_there_are() -> None:
    uids = {dashboard["uid"] for dashboard in BUILT.values()}
    linked = {
        prop["value"][0]["url"].split("/d/")[1].split("?")[0]
        for dashboard in BUILT.values()
        for panel in dashboard["panels"]
        for override in panel.get("fieldConfig", {}).get("overrides", [])
        for prop in override["properties"]
        if prop["id"] == "links"
    }
    assert linked == {"headway-node", "headway-run"}
    assert linked < uids
