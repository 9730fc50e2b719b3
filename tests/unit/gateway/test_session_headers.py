"""What passes between a browser and the program of a session, and what does not."""

import pytest

from headway.gateway.session_answer import for_browser, for_program


def sent(*headers: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    return dict(for_program(headers, "secret", "https"))


def cookies(*values: bytes) -> list[bytes]:
    found = for_browser([(b"Set-Cookie", each) for each in values], "/run/")
    return [value for _, value in found]


def test_the_program_gets_its_own_secret_in_the_place_of_the_token() -> None:
    got = sent((b"host", b"gw:4281"), (b"authorization", b"Bearer hwt_mine"), (b"x-own", b"1"))
    assert got[b"authorization"] == b"Bearer secret"
    assert (got[b"host"], got[b"x-forwarded-host"], got[b"x-own"]) == (b"gw:4281", b"gw:4281", b"1")


@pytest.mark.parametrize(
    "name",
    [b"headway_token", b"HEADWAY_token", b" headway_token ", b'"headway_token', b"headway_more"],
)
def test_no_cookie_of_the_gateway_reaches_it(name: bytes) -> None:
    assert sent((b"cookie", b"a=1; " + name + b"=hwt_mine; b=2"))[b"cookie"] == b"a=1; b=2"
    assert b"cookie" not in sent((b"cookie", name + b"=hwt_mine"))


@pytest.mark.parametrize("between", [b", ", b" ", b"\t", b",", b'" '])
def test_no_cookie_of_the_gateway_reaches_it_behind_another(between: bytes) -> None:
    written = b"a=1" + between + b"Headway_token=hwt_mine"
    assert b"cookie" not in sent((b"cookie", written))
    assert sent((b"cookie", b"a=headway, rest=1"))[b"cookie"] == b"a=headway, rest=1"


def test_a_body_keeps_its_length_whatever_is_said_of_the_way() -> None:
    got = sent((b"host", b"a"), (b"content-length", b"9"), (b"connection", b"content-length, host"))
    assert (got[b"host"], got[b"content-length"]) == (b"a", b"9")


def test_what_others_say_of_the_way_is_not_passed_on() -> None:
    got = sent(
        (b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-proto", b"gopher"), (b"te", b"trailers"),
        (b"connection", b"x-hop, close"), (b"x-hop", b"1"), (b"sec-websocket-key", b"k"),
    )  # fmt: skip
    assert set(got) == {b"authorization", b"x-forwarded-proto", b"x-forwarded-host", b"connection"}
    assert got[b"x-forwarded-proto"] == b"https"


def test_a_cookie_holds_below_the_sessions_path_of_this_host_alone() -> None:
    assert cookies(b"own=1; Path=/; Domain=example.org; HttpOnly; SameSite=None; Secure") == [
        b"own=1; HttpOnly; SameSite=None; Secure; Path=/run/"
    ]
    assert cookies(b"own=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT") == [
        b"own=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Path=/run/"
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"headway_token=stolen", b"Headway_Token=stolen", b"=headway_token=stolen",
        b"headway_token", b" headway_token = stolen", b'"headway_token"=stolen',
        b"__Host-x=1", b"__Secure-x=1", b"",
    ],
)  # fmt: skip
def test_no_cookie_passes_that_might_be_the_gateways(value: bytes) -> None:
    assert cookies(value) == []


@pytest.mark.parametrize(
    "name",
    [b"Clear-Site-Data", b"Service-Worker-Allowed", b"Strict-Transport-Security", b"Alt-Svc"],
)
def test_what_speaks_for_the_whole_host_is_left_out(name: bytes) -> None:
    assert for_browser([(name, b"x"), (b"X-Own", b"1")], "/run/") == [(b"x-own", b"1")]
