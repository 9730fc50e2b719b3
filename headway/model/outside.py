"""How programs of a site reach what lies outside: index of packages, proxy, certificates."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_ADDRESS = re.compile(r"(?:https?|file)://[^\s@]+")
_OF_CERTIFICATES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
)  # fmt: skip
"""What OpenSSL, uv and httpx; requests; curl; pip; and git look at."""
CERTIFICATES_FILE = "certificates.pem"


def _address(text: str) -> str:
    if text and not _ADDRESS.fullmatch(text):
        raise ValueError(
            f"give an address such as https://pypi.example.org/simple, without a password: members "
            f"see it, not {text[:100]!r}"
        )
    return text


class Outside(BaseModel):
    """One block of settings for all containers; empty where the world is reached directly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: Annotated[str, AfterValidator(_address)] = ""
    """Of packages, in the place of the public one."""
    more_indexes: tuple[Annotated[str, AfterValidator(_address)], ...] = ()
    """Asked before it."""
    proxy: Annotated[str, AfterValidator(_address)] = ""
    no_proxy: tuple[str, ...] = ()
    """Names that are reached without the proxy."""
    certificates: Path | None = None
    """A PEM file on every node with all authorities that programs are to trust."""
    contact: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    """Whom members ask where one of these does not work."""

    def variables(self, certificates: str = "") -> Mapping[str, str]:
        """What tells programs of it, with the path that *certificates* have in the container."""
        return {name: value for name, value in self._all(certificates).items() if value}

    def lacks(self, variables: Mapping[str, str]) -> list[str]:
        """Which of the *variables* of a shell that lead outside containers are not given."""
        given = self._all(str(self.certificates or ""))
        return [name for name, value in given.items() if variables.get(name) and not value]

    def _all(self, certificates: str) -> Mapping[str, str]:
        more, proxy, without = " ".join(self.more_indexes), self.proxy, ",".join(self.no_proxy)
        return {
            "UV_DEFAULT_INDEX": self.index,
            "PIP_INDEX_URL": self.index,
            "UV_INDEX": more,
            "PIP_EXTRA_INDEX_URL": more,
            **{name: proxy for each in ("HTTP_PROXY", "HTTPS_PROXY") for name in _both(each)},
            **dict.fromkeys(_both("NO_PROXY"), without),
            **dict.fromkeys(_OF_CERTIFICATES, certificates),
        }


def _both(name: str) -> tuple[str, str]:
    """In capitals and not: curl reads the one alone, others the other."""
    return name, name.lower()
