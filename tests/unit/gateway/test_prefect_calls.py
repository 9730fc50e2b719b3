"""Which calls of Prefect's API pass: the table, tricks with paths, and filters of bodies."""

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.gateway.errors import NotAllowed
from headway.gateway.prefect_calls import (
    API,
    CALLS,
    Treatment,
    check_question,
    find,
    named_runs,
    narrowed,
    without_content,
    without_settings,
)

RUN = "0190c9a4-1111-4222-8333-444455556666"
EXAMPLES = {"{id}": RUN, "{name}": "default"}
PATHS = sorted({call.pattern for call in CALLS})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "")


def example(pattern: str) -> str:
    return API + "/".join(EXAMPLES.get(each, each) for each in pattern.split("/"))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.pattern}")
def test_what_is_in_the_table_passes_as_it_was_sent(call: Any) -> None:
    path = example(call.pattern)
    found = find(call.method, path)
    assert found is not None
    assert found.call == call
    assert f"/api{found.path}" == path
    assert all(part in EXAMPLES.values() for part in found.parts)


@pytest.mark.parametrize(
    "asked",
    [
        "POST block_documents/", f"PATCH block_documents/{RUN}", f"GET block_documents/{RUN}",
        "POST deployments/", f"PATCH deployments/{RUN}", f"DELETE flow_runs/{RUN}",
        f"PATCH flow_runs/{RUN}", "POST flow_runs/", "POST flows/", "POST work_pools/",
        "PATCH work_pools/default", "POST admin/database/clear", "POST admin/database/drop",
        "GET admin/version", "GET admin/", "GET csrf-token", f"GET block_documents/{RUN}?x",
        "POST logs/", "POST artifacts/", "POST variables/", "POST automations/", "GET events/out",
        "POST events", "POST block_types/filter", "POST concurrency_limits/", "GET logs/out",
        f"POST task_runs/{RUN}/set_state", "POST work_pools/default/get_scheduled_flow_runs",
        f"GET flow_runs/{RUN}/input/x", f"PUT flow_runs/{RUN}/labels", "GET docs", "GET ../docs",
        f"POST flow_runs/{RUN}/input", "POST deployments/get_scheduled_flow_runs",
        "POST work_pools/default/concurrency_status",
    ],
)  # fmt: skip
def test_what_an_operator_does_does_not_pass(asked: str) -> None:
    method, path = asked.split()
    assert find(method, API + path) is None


TRICKS = [
    lambda path: path.replace("/api/", "/api//"),
    lambda path: path.replace("/api/", "//api/"),
    lambda path: path.replace("/api/", "/API/"),
    lambda path: path[:5] + path[5:].upper(),
    lambda path: path.replace("/api/", "/api/./"),
    lambda path: path.replace("/api/", "/api/../api/"),
    lambda path: path.replace("/api/", "/api%2F"),
    lambda path: path.replace("/api/", "http://127.0.0.1:4200/api/"),
    lambda path: path + "/",
    lambda path: path + "//",
    lambda path: path + "/..",
    lambda path: path + "/../../../admin/settings",
    lambda path: path + "%2F..%2Fadmin",
    lambda path: path + ";a=b",
    lambda path: path + "?a=b",
    lambda path: path + "#a",
    lambda path: path + "%00",
    lambda path: path + "%0d%0aHost:%20x",
    lambda path: path + "\\..\\admin",
    lambda path: path + "\r\n",
    lambda path: path + " ",
    lambda path: f"{path[:5]}%{ord(path[5]):02x}{path[6:]}",
    lambda path: path.replace("flow_runs", "ﬂow_runs") if "flow_runs" in path else path + "ﬂ",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_with_paths_do_not_pass(trick: Any) -> None:
    asked = [(method, trick(example(pattern))) for pattern in PATHS for method in METHODS]
    assert [each for each in asked if find(*each) is not None] == []


SEGMENTS = st.lists(
    st.sampled_from(
        [*{part for path in PATHS for part in path.split("/")}, RUN, "..", ".", "", "admin",
         "%2e%2e", "settings", "clear", "%2F", "block_documents", "default", "\\", "x" * 300]
    )
    | st.text(max_size=8),
    max_size=6,
)  # fmt: skip


@given(st.sampled_from(METHODS), SEGMENTS, st.sampled_from([API, "/api", "/", "", "//api/"]))
def test_whatever_passes_is_a_plain_path_of_the_table(
    method: str, segments: list[str], start: str
) -> None:
    raw = start + "/".join(segments)
    found = find(method, raw)
    if found is None:
        return
    assert (method, raw) == (found.call.method, f"/api{found.path}")
    assert unquote(found.path) == found.path
    assert not {"", ".", ".."} & set(found.path[1:].split("/"))
    assert found.path.isascii()
    assert found.path.isprintable()
    assert " " not in found.path
    words = [each for each in found.call.pattern.split("/") if each not in EXAMPLES]
    assert set(words) <= set(found.path.split("/"))


def test_only_three_calls_change_anything() -> None:
    acting = {Treatment.CREATE, Treatment.SET_STATE, Treatment.RESUME}
    assert {call.pattern for call in CALLS if call.treatment in acting} == {
        "deployments/{id}/create_flow_run", "flow_runs/{id}/set_state", "flow_runs/{id}/resume",
    }  # fmt: skip
    reads = [call for call in CALLS if call.method == "POST" and call.treatment not in acting]
    last = {call.pattern.rpartition("/")[2] for call in reads}
    assert last == {
        "filter", "count", "paginate", "lateness", "history", "counts", "count-deployments",
        "count-task-runs", "next-runs", "event", "time", "validate",
    }  # fmt: skip


def test_of_an_operators_deployment_its_name_is_told() -> None:
    told = {"id": RUN, "name": "nightly", "flow_id": RUN, "paused": False, "status": "READY"}
    kept = {"parameters": {"password": "p"}, "path": "/srv", "schedules": [1], "tags": ["a"]}
    empty = {"parameters": {}, "path": None, "schedules": [], "tags": []}
    assert without_content({**told, **kept}) == {**told, **empty}


OURS = {"tags": {"all_": ["team:vision"]}}


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ({}, OURS),
        ({"flow_runs": None}, OURS),
        ({"flow_runs": {"tags": None, "name": {"like_": "x"}}}, {"name": {"like_": "x"}} | OURS),
        (
            {"flow_runs": {"operator": "and_", "tags": {"all_": ["team:speech"], "any_": ["a"]}}},
            {"operator": "and_", "tags": {"all_": ["team:speech", "team:vision"], "any_": ["a"]}},
        ),
    ],
)
def test_a_question_about_runs_is_about_the_teams_own(
    body: dict[str, Any], runs: dict[str, Any]
) -> None:
    assert narrowed(body, "vision", always=True)["flow_runs"] == runs


@pytest.mark.parametrize(
    "runs",
    [
        {"operator": "or_"},
        {"operator": ["or_"]},
        {"tags": {"operator": "or_", "all_": ["a"]}},
        {"tags": {"all_": "team:speech"}},
        {"tags": ["team:speech"]},
        "all",
        [1],
    ],
)
def test_a_filter_that_is_not_narrowed_by_another_condition_is_refused(runs: object) -> None:
    with pytest.raises(NotAllowed):
        narrowed({"flow_runs": runs}, "vision", always=False)


def test_a_question_about_the_site_tells_nothing_of_others_runs() -> None:
    assert narrowed({"limit": 5}, "vision", always=False) == {"limit": 5}
    asked = {"task_runs": {"name": {"like_": "x"}}}
    assert narrowed(asked, "vision", always=False)["flow_runs"] == OURS


def test_logs_are_asked_for_by_run() -> None:
    named = {"logs": {"flow_run_id": {"any_": [RUN]}}}
    assert named_runs(Treatment.LOGS, named) == [RUN]
    for body in (
        {},
        {"logs": None},
        {"logs": {"flow_run_id": {"any_": []}}},
        {"logs": {"flow_run_id": {"any_": [1]}}},
        {"logs": {"operator": "or_", "flow_run_id": {"any_": [RUN]}}},
        {"logs": {"task_run_id": {"any_": [RUN]}}},
        {"logs": {}, "flow_run_ids": [RUN]},
        {"flow_run_ids": [RUN]},
    ):
        with pytest.raises(NotAllowed):
            named_runs(Treatment.LOGS, body)


def test_a_run_counts_where_prefect_reads_it() -> None:
    """Else one's own run would open a question about the runs of all."""
    named = {"logs": {"flow_run_id": {"any_": [RUN]}}}
    other = "0190c9a4-2222-4222-8333-444455556666"
    assert named_runs(Treatment.RUN_IDS, named | {"flow_run_ids": [other]}) == [other]
    assert named_runs(Treatment.LOGS, named | {"flow_run_ids": [other]}) == [RUN]
    with pytest.raises(NotAllowed):
        named_runs(Treatment.RUN_IDS, named)


def test_what_operators_set_for_processes_is_left_out() -> None:
    pool = {"name": "gpu", "base_job_template": {"variables": {"env": {"KEY": "secret"}}}}
    runs = [{"id": 1, "job_variables": {"env": {"KEY": "secret"}}, "tags": []}]
    seen = without_settings({"pools": [pool], "runs": runs, "count": 1})
    assert "secret" not in repr(seen)
    assert seen["runs"] == [{"id": 1, "job_variables": {}, "tags": []}]


@pytest.mark.parametrize(
    "body", [{"a": "x\0"}, {"x\0": 1}, {"flow_runs": {"name": {"any_": ["a", ["\0"]]}}}]
)
def test_a_nul_in_a_question_is_refused_at_whatever_depth(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="leave the character NUL out"):
        check_question(body)
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    check_question({"a": deep, "b": "\\u0000", "c": [None, 1, True]})


def test_a_list_in_a_question_has_at_most_a_thousand() -> None:
    check_question({"flow_runs": {"id": {"any_": ["x"] * 1000}}})
    with pytest.raises(InvalidInput, match="at most 1000 at once"):
        check_question({"flow_runs": {"id": {"any_": ["x"] * 1001}}})
