"""TLS at the gateway: its own certificate, a login that pins it, and what is refused without."""

import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest
import uvicorn
from click.testing import CliRunner, Result
from pydantic import SecretStr

from headway.admin.join import learn_gateway, leave
from headway.cli.main import headway
from headway.client import Client
from headway.client.ways import open_way
from headway.clock import SystemClock
from headway.credentials import (
    Address,
    GatewayPlace,
    credentials_file,
    find_address,
    local_address,
    read_credentials,
)
from headway.gateway.certificate import (
    Certificate,
    addresses_not_named,
    announced,
    make_certificate,
    site_certificate,
)
from headway.gateway.door import Door
from headway.ledger import Ledger
from headway.model.access import token_digest
from headway.node.protocols import BoundedHttp
from headway.pinning import CertificateOfOtherNames, CertificateRefused
from headway.settings import Settings, read_settings
from headway.site import Site
from tests.support.api import MEMBER, bearer, serving
from tests.support.postgresql import new_ledger
from tests.support.site import forget_site

NAMES = ("127.0.0.1", "localhost")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    url = new_ledger()
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADWAY_LEDGER_URL", url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HEADWAY_URL", raising=False)
    monkeypatch.delenv("HEADWAY_TOKEN", raising=False)
    forget_site()
    settings = Settings(home=tmp_path / "home", ledger_url=SecretStr(url), runtime="process")
    made = Site(settings, SystemClock(), Ledger.open)
    made.ledger.nodes.all()  # it is made when it is first asked
    yield made
    made.ledger.close()
    forget_site()


@pytest.fixture
def own(site: Site) -> Certificate:
    return make_certificate(site.settings, NAMES, site.clock.now())


@pytest.fixture
def let_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What each request that reached the gateway's application showed."""
    seen: list[dict[str, str]] = []
    admit = Door._admit

    async def noted(self: Door, scope: Any) -> None:
        seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await admit(self, scope)

    monkeypatch.setattr(Door, "_admit", noted)
    return seen


def token_of(site: Site) -> str:
    return bearer(site, "ada", "vision", MEMBER)["Authorization"].removeprefix("Bearer ")


def log_in(*arguments: str, given: str) -> Result:
    return CliRunner().invoke(headway, ["login", *arguments], input=given)


def test_a_login_pins_the_certificate_and_keeps_the_token_for_its_owner_alone(
    site: Site, own: Certificate
) -> None:
    token = token_of(site)
    with serving(site, own=own) as url:
        done = log_in(url, given=f"y\n{token}\n")
        assert done.exit_code == 0, done.output
        assert own.fingerprint in done.output
        assert "as ada of team vision; the token may " in done.output
        assert token not in done.output
        with Client(find_address(site.settings)) as client:
            assert client.nodes() == []
    kept = read_credentials(credentials_file())
    assert kept is not None
    assert (kept.url, kept.token, kept.certificate) == (url, token, own.path.read_text())
    assert stat.S_IMODE(credentials_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(own.key.stat().st_mode) == 0o600


def test_a_fingerprint_that_the_operator_told_needs_no_question(
    site: Site, own: Certificate
) -> None:
    token = token_of(site)
    with serving(site, own=own) as url:
        done = log_in(
            url, "--fingerprint", own.fingerprint.lower(), "--token-stdin", given=f"{token}\n"
        )
        assert done.exit_code == 0, done.output
        unsure = log_in(url, "--token-stdin", given=f"{token}\n")
        assert unsure.exit_code == 2
        assert "give --fingerprint" in unsure.output


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--fingerprint", "AB:" * 31 + "AB", "--token-stdin"], ""),
        (["--fingerprint", "AB", "--token-stdin"], ""),
        ([], "n\n"),
    ],
)
def test_no_token_goes_to_a_gateway_that_nobody_has_vouched_for(
    site: Site,
    own: Certificate,
    let_in: list[dict[str, str]],
    arguments: list[str],
    given: str,
) -> None:
    with serving(site, own=own) as url:
        done = log_in(url, *arguments, given=f"{given}{token_of(site)}\n")
    assert done.exit_code == 2, done.output
    assert let_in == []
    assert not credentials_file().exists()


def test_a_changed_certificate_is_refused_before_the_token_is_sent(
    site: Site, own: Certificate, let_in: list[dict[str, str]]
) -> None:
    token = token_of(site)
    with serving(site, own=own) as url:
        log_in(url, "--fingerprint", own.fingerprint, "--token-stdin", given=f"{token}\n")
    kept = find_address(site.settings)
    let_in.clear()
    renewed = make_certificate(site.settings, NAMES, site.clock.now())
    assert renewed.fingerprint != own.fingerprint
    with serving(site, own=renewed) as elsewhere:
        moved = type(kept)(elsewhere, kept.token, kept.certificate)
        with Client(moved) as client, pytest.raises(CertificateRefused) as caught:
            client.nodes()
        assert "`headway login` again" in str(caught.value)
        assert let_in == []
        again = log_in(
            elsewhere, "--fingerprint", renewed.fingerprint, "--token-stdin", given=f"{token}\n"
        )
        assert again.exit_code == 0, again.output


def test_a_certificate_for_other_names_is_refused_with_its_names(site: Site) -> None:
    named = site.settings.model_copy(update={"gateway_host": "10.0.0.5"})
    other = make_certificate(named, ["gpus.example.org"], site.clock.now())
    known, token = ("--fingerprint", other.fingerprint), token_of(site)
    with serving(site, own=other) as url:
        for host in ("127.0.0.1", "localhost"):
            elsewhere = url.replace("127.0.0.1", host)
            done = log_in(elsewhere, *known, "--token-stdin", given=f"{token}\n")
            assert done.exit_code == 3
            said = f"is for 10.0.0.5, gpus.example.org, not for {host}, so nothing was sent"
            assert said in done.output
            assert "HEADWAY_GATEWAY_NAMES" in done.output
            address = Address(elsewhere, token, other.path.read_text())
            with pytest.raises(CertificateOfOtherNames, match=f"not for {host}"):
                open_way(address, "/runs/x/exec")


def test_a_token_is_not_sent_over_a_network_without_tls(site: Site) -> None:
    done = log_in("http://gpus.example.org:4280", "--token-stdin", given=f"{token_of(site)}\n")
    assert done.exit_code == 2
    assert "nothing was asked: give https" in done.output


def test_a_token_that_lets_nobody_in_is_not_kept(site: Site, own: Certificate) -> None:
    with serving(site, own=own) as url:
        for token in ("hwt_" + "x" * 43, "no token at all"):
            done = log_in(
                url, "--fingerprint", own.fingerprint, "--token-stdin", given=f"{token}\n"
            )
            assert done.exit_code != 0
            assert token not in done.output
    assert not credentials_file().exists()


def test_the_token_is_no_option_of_login() -> None:
    _, command, _ = headway.resolve_command(click.Context(headway), ["login"])
    assert {param.name for param in command.params} == {"url", "expected", "token_stdin"}


# --- what the gateway binds to ---


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command would have served with."""
    found: dict[str, Any] = {}

    def note(server: uvicorn.Server, **_: object) -> None:
        names = ("http", "proxy_headers", "ssl_certfile", "ssl_keyfile")
        found.update({name: getattr(server.config, name) for name in names})

    def listening(host: str, port: int) -> mock.Mock:
        found["host"] = host
        found.setdefault("port", port)  # the pages of sessions come second
        return mock.Mock()

    monkeypatch.setattr("headway.node.apart.fork_helper", lambda: None)
    monkeypatch.setattr("headway.node.protocols.listening", listening)
    monkeypatch.setattr("uvicorn.Server.run", note)
    return found


def gateway(*arguments: str) -> Result:
    return CliRunner().invoke(headway, ["gateway", *arguments])


def test_beyond_loopback_the_gateway_speaks_tls_alone(site: Site, served: dict[str, Any]) -> None:
    refused = gateway("--host", "0.0.0.0")
    assert (refused.exit_code, served) == (2, {})
    assert "give --name" in refused.output
    done = gateway("--host", "0.0.0.0", "--name", "gpus.example.org", "--name", "10.0.0.5")
    assert done.exit_code == 0, done.output
    own = site_certificate(site.settings)
    assert own is not None
    # The last is for this machine's own commands.
    assert own.names == {"gpus.example.org", "10.0.0.5", "127.0.0.1"}
    assert (served["ssl_certfile"], served["ssl_keyfile"]) == (own.path, own.key)
    assert own.fingerprint in done.output
    assert own.key.stat().st_mode & 0o077 == 0


def test_the_certificate_is_kept_until_an_operator_renews_it(
    site: Site, served: dict[str, Any]
) -> None:
    for _ in range(2):
        assert gateway("--host", "0.0.0.0", "--name", "a.example").exit_code == 0
    before = site_certificate(site.settings)
    assert before is not None
    other = gateway("--host", "0.0.0.0", "--name", "b.example")
    assert other.exit_code == 2
    assert "headway certificate --renew" in other.output
    assert site_certificate(site.settings) == before
    renewed = CliRunner().invoke(headway, ["certificate", "--renew", "--name", "b.example"])
    assert renewed.exit_code == 0, renewed.output
    assert gateway("--host", "0.0.0.0", "--name", "b.example").exit_code == 0
    after = site_certificate(site.settings)
    assert after is not None
    assert after.fingerprint in renewed.output
    assert after.fingerprint != before.fingerprint


def test_half_a_pair_is_refused(site: Site, own: Certificate, served: dict[str, Any]) -> None:
    done = gateway("--certificate", str(own.path))
    assert (done.exit_code, served) == (2, {})


def test_what_is_no_name_is_no_certificates(site: Site) -> None:
    for name in ("", "a:80", "a b", "-x/", "a..b", "x" * 64, "ünï"):
        done = CliRunner().invoke(headway, ["certificate", "--renew", "--name", name])
        assert done.exit_code == 2, (name, done.output)
        assert site_certificate(site.settings) is None


ADDRESSES = {
    name: [SimpleNamespace(family=socket.AF_INET, address=each) for each in addresses]
    for name, addresses in (
        ("lo", ["127.0.0.1"]), ("eth0", ["10.0.0.5", "10.0.0.6"]), ("eth1", ["192.0.2.2"]),
        ("docker0", ["172.17.0.1"]),
    )
}  # fmt: skip


def added() -> str:
    done = CliRunner().invoke(headway, ["user", "add", "ada", "--team", "vision"])
    assert done.exit_code == 0
    return done.stderr


def test_the_environment_says_where_the_gateway_of_up_binds(
    site: Site, served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_GATEWAY_HOST", "0.0.0.0")
    forget_site()
    refused = gateway()
    assert (refused.exit_code, served) == (2, {})
    assert "HEADWAY_GATEWAY_NAMES" in refused.output
    monkeypatch.setenv("HEADWAY_GATEWAY_NAMES", "localhost,gpus.example.org,10.0.0.5")
    forget_site()
    assert gateway().exit_code == 0
    assert (served["host"], served["port"]) == ("0.0.0.0", site.settings.gateway_port)
    assert (served["http"], served["proxy_headers"]) == (BoundedHttp, False)
    own = site_certificate(site.settings)
    assert own is not None
    pem = own.path.read_text()
    here = local_address(site.settings)
    assert (here.url, here.certificate) == (f"https://127.0.0.1:{served['port']}", pem)
    told = announced(site.ledger)
    assert told == GatewayPlace(f"https://gpus.example.org:{served['port']}", pem)
    line = f"headway login https://gpus.example.org:{served['port']}"
    assert added().endswith(f"{line} --fingerprint {own.fingerprint}\n")
    monkeypatch.setattr("psutil.net_if_addrs", lambda: ADDRESSES)
    assert "is not for 10.0.0.6, 192.0.2.2 of this machine" in addresses_not_named(read_settings())
    monkeypatch.delenv("HEADWAY_GATEWAY_HOST")
    forget_site()
    assert gateway().exit_code == 0
    assert served["host"] == "127.0.0.1"
    assert local_address(site.settings).url == f"http://127.0.0.1:{served['port']}"
    assert announced(site.ledger) is None
    assert addresses_not_named(read_settings()) == ""
    assert added().endswith(f"headway login http://127.0.0.1:{served['port']}\n")


def test_a_machine_that_joins_comes_in_by_a_token_of_its_own(
    site: Site, served: dict[str, Any], tmp_path: Path
) -> None:
    url = site.settings.database_url
    there = Settings(home=tmp_path / "there", ledger_url=SecretStr(url), node="there")
    there.home.mkdir()
    said: list[str] = []
    learn_gateway(there, site.ledger, said.append)
    assert "HEADWAY_GATEWAY_HOST" in said[0]
    assert not there.token_file.exists()
    assert gateway("--host", "10.0.0.5").exit_code == 0  # a name enough
    learn_gateway(there, site.ledger, said.append)
    assert len(said) == 1
    here, found = local_address(site.settings), local_address(there)
    assert here.url == f"https://10.0.0.5:{served['port']}"
    assert (found.url, found.certificate) == (here.url, here.certificate)
    assert found.token != here.token
    assert there.token_file.stat().st_mode & 0o077 == 0
    there.server_pointer.write_text("http://head:4200/api")
    leave(there)
    assert site.ledger.access_tokens.valid(token_digest(found.token)) is None
    assert site.ledger.access_tokens.valid(token_digest(here.token)) is not None
    assert not there.token_file.exists()
