"""Which requests a node takes for the site's own."""

import pytest

from headway.model.run_file import EXPIRES, NONCE, REQUEST_LASTS_S, SIGNATURE, signed, why_refused

KEY, NODE, TARGET, NOW_S = "key", "left", "/runs/r1/log?from=0", 1_000_000.5


def headers(key: str = KEY, node: str = NODE, method: str = "GET", target: str = TARGET):
    made = signed(key, node, method, target, NOW_S)
    return {name.lower(): value for name, value in made.items()}


def test_a_signed_request_is_taken_for_a_while() -> None:
    for later_s in (-REQUEST_LASTS_S, 0, REQUEST_LASTS_S):
        assert not why_refused(KEY, NODE, "GET", TARGET, headers(), now_s=NOW_S + later_s)
    for later_s in (-3 * REQUEST_LASTS_S, 3 * REQUEST_LASTS_S, 86_400):
        assert "expired" in why_refused(KEY, NODE, "GET", TARGET, headers(), now_s=NOW_S + later_s)


@pytest.mark.parametrize(
    "other",
    [headers(key="another"), headers(node="right"), headers(method="HEAD"),
     headers(target="/runs/r2/log?from=0"), headers(target="/runs/r1/log?from=00"), {},
     headers() | {EXPIRES.lower(): "1000300"}, headers() | {SIGNATURE.lower(): "é"},
     headers() | {EXPIRES.lower(): "9" * 13}, headers() | {EXPIRES.lower(): "-1"},
     headers() | {EXPIRES.lower(): "¹²"}, headers() | {NONCE.lower(): "another"}],
)  # fmt: skip
def test_a_request_for_anything_else_is_refused(other: dict[str, str]) -> None:
    assert why_refused(KEY, NODE, "GET", TARGET, other, now_s=NOW_S)


def test_a_node_without_a_worker_takes_none() -> None:
    assert why_refused("", NODE, "GET", TARGET, headers(key=""), now_s=NOW_S)
