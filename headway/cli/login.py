"""Commands by which a person comes to trust a site's gateway, and it to know them."""

import sys

import click

from headway.cli.inputs import this_site
from headway.cli.output import Json, say, told_by
from headway.errors import InvalidInput
from headway.model.access import looks_like_token
from headway.pinning import fingerprint, is_known_here, same_fingerprint, shown_certificate


@click.command()
@click.argument("url")
@click.option("--fingerprint", "expected", help="Of the site's certificate, as its operator says.")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input.")
def login(url: str, expected: str | None, token_stdin: bool) -> None:
    """Log in to the gateway at URL with your token.

    The address, its certificate and the token are kept for later commands. The certificate is
    shown before anything is sent: compare its fingerprint with what the operator told you
    (`headway certificate` prints it at the site), or give it as --fingerprint. From then on only
    that certificate is trusted. The token is asked for, or read from standard input where that is
    no terminal. It is never an argument, which other users of this machine would see.

    Examples:
      headway login https://gpu.example.org:4280
      headway login https://gpu.example.org:4280 --token-stdin < token
    """
    from headway.client import Client
    from headway.credentials import Address, checked_url, credentials_file, keep_credentials

    url = checked_url("URL", url)
    certificate = _trusted(url, expected, asks=not token_stdin)
    piped = token_stdin or not sys.stdin.isatty()
    token = sys.stdin.readline() if piped else click.prompt("Your token", hide_input=True)
    token = token.strip()
    if not looks_like_token(token):
        allowed = "give the one that an operator made for you with `headway user add`; it begins"
        raise InvalidInput("token", f"{len(token)} characters", f"{allowed} with hwt_")
    address = Address(url, token, certificate)
    with Client(address) as client:
        me = client.me()
    path = credentials_file()
    keep_credentials(path, address)
    team = f" of team {me['team']}" if me["team"] else ""
    say(f"logged in at {url} as {me['user']}{team}; the token may {', '.join(me['scopes'])}")
    say(f"what commands need for it is in {path}, which only you can read")


def _trusted(url: str, expected: str | None, *, asks: bool) -> str | None:
    """The certificate at *url* that is to be trusted; None where this machine knows it anyway.

    Raises:
        InvalidInput: It is not the expected one, or nobody can say whether it is.
    """
    if not url.startswith("https:"):
        return None
    pem = shown_certificate(url)
    seen = fingerprint(pem)
    if expected is not None:
        if not same_fingerprint(expected, seen):
            allowed = f"{url} shows {seen}: somebody may stand between you and it; ask the operator"
            raise InvalidInput("fingerprint", expected, f"{allowed}. No token was sent")
        return pem
    if is_known_here(url):
        return None
    say(f"{url} shows a certificate that nobody here has signed, with the fingerprint")
    say(f"  {seen}")
    if not asks:
        allowed = "give --fingerprint: nobody can be asked here whether this is the site's"
        raise InvalidInput("fingerprint", "nothing", allowed)
    if not click.confirm("Is this what the site's operator told you?"):
        allowed = "no token was sent; ask the operator what `headway certificate` prints there"
        raise InvalidInput("fingerprint", seen, allowed)
    return pem


def _tell(found: Json) -> None:
    say(found["fingerprint"])
    say(f"for {', '.join(found['names'])}, until {found['expires_at'][:10]}")


@click.command()
@click.option(
    "--name", "names", multiple=True, help="Name or address of the gateway, with --renew."
)
@click.option("--renew", is_flag=True, help="Make another one; everybody has to log in again.")
@told_by(_tell)
def certificate(names: tuple[str, ...], renew: bool) -> Json:
    """Show the gateway's certificate: fingerprint, names, expiry.

    The first `headway gateway` that binds beyond loopback makes it.

    Examples:
      headway certificate
      headway certificate --renew --name gpu.example.org
    """
    from headway.gateway.certificate import make_certificate, site_certificate

    site = this_site()
    found = site_certificate(site.settings)
    if renew:
        wanted = names or tuple(sorted(found.names if found else ()))
        found = make_certificate(site.settings, wanted, site.clock.now())
        say("`headway up` lets the gateway show it, or a restart of its service", err=True)
    elif names:
        raise InvalidInput("name", ", ".join(names), "give --renew with it")
    if found is None:
        allowed = "this site has none: its gateway makes it beyond loopback, or --renew"
        raise InvalidInput("certificate", "nothing", allowed)
    return {
        "fingerprint": found.fingerprint,
        "names": sorted(found.names),
        "expires_at": found.expires_at.isoformat(),
        "file": str(found.path),
    }
