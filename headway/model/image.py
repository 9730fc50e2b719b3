"""Names of container images, in the grammar of the distribution project, and patterns of them.

The parts are told apart before anything is compared: in ``python:5000/evil`` the
5000 is a port of the registry ``python``, not a tag of the image ``python``.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

GIVE_IMAGE = "give an image such as python:3.11-slim or registry/team/image:tag"
"""What is said to who gives no name of an image."""

_DOCKER_HUB = "docker.io"
_OTHER_NAMES = frozenset({"index.docker.io", "registry-1.docker.io"})
_MOST_CHARACTERS = 255

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ImageReference:
    """An image by its full name. Names that mean the same image are equal."""

    registry: str
    """Host, and port if it has one; ``docker.io`` where none is written."""
    repository: str
    """Path there; ``library/python`` for Docker's own ``python``."""
    tag: str
    """``latest`` where neither tag nor digest is written; empty beside a digest,
    since the engine goes by the digest alone."""
    digest: str

    @classmethod
    def parse(cls, text: str) -> "ImageReference":
        """The image that *text* names. Raises `ValueError` for what is no name of an image."""
        registry, repository, tag, digest = _split(text)
        good = (
            len(text) <= _MOST_CHARACTERS
            and _REGISTRY.fullmatch(registry)
            and _REPOSITORY.fullmatch(repository)
            and (tag is None or _TAG.fullmatch(tag))
            and (digest is None or _DIGEST.fullmatch(digest))
            # The engine would take these for the id of an image, whatever its name.
            and not _DIGEST.fullmatch(text)
            and not _IMAGE_ID.fullmatch(text)
        )
        if not good:
            raise ValueError(GIVE_IMAGE)
        if digest is not None:
            return cls(registry, repository, "", digest)
        return cls(registry, repository, "latest" if tag is None else tag, "")

    def __str__(self) -> str:
        """Its full name, which the engine cannot take for anything else."""
        end = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{end}"

    def matches(self, pattern: str) -> bool:
        """Does *pattern* allow it? Each part is compared with its own part alone.

        ``*`` stands for any characters of one part: of the registry, of one
        component of the path, of the tag or of the digest. A pattern without a
        tag, or with the tag ``*``, allows whatever is in that repository; one
        with another tag allows no digest, since any image may stand behind it.
        """
        registry, repository, tag, digest = _split(pattern)
        mine, theirs = self.repository.split("/"), repository.split("/")
        same_place = (
            fnmatchcase(self.registry, registry)
            and len(mine) == len(theirs)
            and all(map(fnmatchcase, mine, theirs))
        )
        if digest is not None:
            return same_place and fnmatchcase(self.digest, digest)
        if tag in (None, "*"):
            return same_place
        return same_place and not self.digest and fnmatchcase(self.tag, str(tag))


def pattern_within(pattern: str, bound: str) -> bool:
    """Does *bound* allow every image that *pattern* allows?

    Each part of *pattern* is compared as it is written: what *bound* lets stand for a star, it
    lets stand for whatever the star stands for.
    """
    registry, repository, tag, digest = _split(pattern)
    bound_registry, bound_repository, bound_tag, bound_digest = _split(bound)
    mine, theirs = repository.split("/"), bound_repository.split("/")
    same_place = (
        fnmatchcase(registry, bound_registry)
        and len(mine) == len(theirs)
        and all(map(fnmatchcase, mine, theirs))
    )
    if bound_digest is not None:
        return same_place and digest is not None and fnmatchcase(digest, bound_digest)
    if bound_tag in (None, "*"):
        return same_place
    named = digest is None and tag not in (None, "*")
    return same_place and named and fnmatchcase(str(tag), str(bound_tag))


def is_image(text: str) -> bool:
    """Is *text* the name of an image?"""
    try:
        ImageReference.parse(text)
    except ValueError:
        return False
    return True


def _split(text: str) -> tuple[str, str, str | None, str | None]:
    """Registry, repository, tag and digest of a name or a pattern; nothing is checked."""
    name, at, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        registry = _DOCKER_HUB if first in _OTHER_NAMES else first
    else:
        registry, rest = _DOCKER_HUB, name
    path, colon, tag = rest.partition(":")
    if registry == _DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return registry, path, tag if colon else None, digest if at else None
