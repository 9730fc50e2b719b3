"""Values that Prefect's form wraps become what its server would make of them."""

from typing import Any

import pytest
from prefect.utilities.schema_tools.hydration import HydrationContext, hydrate

from headway.errors import InvalidInput
from headway.gateway.errors import NotAllowed
from headway.gateway.proxy import plain_values


def wrapped(kind: str, *value: object) -> dict[str, Any]:
    return {"__prefect_kind": kind, **({"value": value[0]} if value else {})}


@pytest.mark.parametrize(
    "form",
    [
        {"name": "digits", "ports": [6006], "env": {"A": "1"}},
        {"env": wrapped("json", '{"A": "1", "B": ["x", null]}')},
        {"env": wrapped("json", {"A": "1"})},
        {"env": wrapped("json", [1, 2])},
        {"env": wrapped("json", None)},
        {"env": wrapped("json"), "name": "x"},
        {"ports": [1, wrapped("json"), wrapped("none", 2), {"a": wrapped("json", "3")}]},
        {"dataset": wrapped("none", {"uri": wrapped("json", '"/d"')})},
        {"name": wrapped("none", "x"), "team": wrapped("none", None)},
        {"env": wrapped("none", wrapped("json", "{}"))},
    ],
)
def test_it_is_what_prefects_server_makes_of_it(form: dict[str, Any]) -> None:
    assert plain_values(form) == hydrate(form, HydrationContext(raise_on_error=True))


@pytest.mark.parametrize("kind", ["jinja", "workspace_variable", "secret", "", 5, ["json"]])
def test_templates_and_variables_are_refused(kind: object) -> None:
    value = {"__prefect_kind": kind, "value": "{{ x }}", "template": "{{ x }}"}
    with pytest.raises(NotAllowed, match=r"env\.A is of the kind"):
        plain_values({"env": {"A": value}})


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": 1, "a": 2}', "", "18446744073709551616"])
def test_json_is_read_strictly_and_the_field_is_named(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plain_values({"env": wrapped("json", text)})
    assert caught.value.field == "env"


def test_what_is_wrapped_without_end_is_refused() -> None:
    form: Any = "x"
    for _ in range(900):
        form = wrapped("none", form)
    with pytest.raises(InvalidInput, match="nest at most"):
        plain_values({"env": form})
