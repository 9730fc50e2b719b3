"""What the gateway's OpenAPI allows to ask, and what it does not: never answered with a 5xx.

`test_gateway.py` asks what no schema describes; this goes by the schema that the gateway itself
hands out, so that a new route is asked without anybody adding it here.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from headway.gateway.app import create_app
from tests.support.api import bearer
from tests.support.bad_specs import EmptyPrefect, small_site

NOT_ASKED = {"/v1/health"}
"""It takes nothing."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """The schema, and headers of several operators in turn, so that none asks too often."""
    with small_site(tmp_path_factory.mktemp("openapi")) as site:
        app = create_app(site, EmptyPrefect())  # type: ignore[arg-type]
        headers = [bearer(site) for _ in range(10)]
        schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app, headers=headers[0])
        yield schema, itertools.cycle(headers)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_request_breaks_the_gateway(gateway: tuple[Any, Any], data: st.DataObject) -> None:
    schema, headers = gateway
    operations = [found.ok() for found in schema.get_all_operations()]
    able = [each for each in operations if each.path not in NOT_ASKED]
    assert len(able) >= 9
    operation = data.draw(st.sampled_from(able))
    mode = data.draw(st.sampled_from(list(GenerationMode)))
    case = data.draw(operation.as_strategy(generation_mode=mode))
    answer = case.call(headers=next(headers))
    assert answer.status_code < 500, (case.as_curl_command(), answer.text)
    assert answer.status_code not in {401, 429}
