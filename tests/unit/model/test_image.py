"""Names of images: which are none, which mean the same, and what a pattern lets through."""

import pytest

from headway.model.container_policy import ContainerPolicy
from headway.model.image import ImageReference, is_image
from tests.support.bad_values import DIGEST, NO_IMAGES

OTHER = "sha256:" + "f" * 64


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("docker.io/library/python:latest", "docker.io/library/python:latest"),
        ("index.docker.io/library/python", "docker.io/library/python:latest"),
        ("library/python", "docker.io/library/python:latest"),
        ("team/tool", "docker.io/team/tool:latest"),
        ("python:5000/evil", "python:5000/evil:latest"),
        ("localhost/evil", "localhost/evil:latest"),
        ("reg.example.org:5000/a/b:1", "reg.example.org:5000/a/b:1"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        # The engine goes by the digest: the tag says nothing.
        (f"python:3.11@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
    ],
)
def test_the_full_name(text: str, full: str) -> None:
    assert str(ImageReference.parse(text)) == full
    assert ImageReference.parse(full) == ImageReference.parse(text)


@pytest.mark.parametrize("text", NO_IMAGES)
def test_what_is_no_image(text: str) -> None:
    assert not is_image(text)
    assert not ContainerPolicy(images=("*", "*/*", "python:*", text)).allows_image(text)


@pytest.mark.parametrize(
    ("pattern", "image", "allowed"),
    [
        ("python:*", "python:3.11-slim", True),
        ("python:*", "python", True),
        ("python:*", "docker.io/library/python:3", True),
        ("docker.io/library/python:*", "python:3", True),
        ("index.docker.io/library/python:*", "python:3", True),
        ("python:*", "python:5000/evil", False),
        ("python:*", "python:5000/evil:3", False),
        ("python:*", "python.evil.org/python:3", False),
        ("python:*", "evil/python:3", False),
        ("python:*", "python/evil:3", False),
        ("python:*", "docker.io.evil.org/library/python:3", False),
        ("python:*", "localhost/python:3", False),
        ("python:*", "pythonx:3", False),
        ("python:*", f"evil@{DIGEST}", False),
        # A repository without a tag is all of it.
        ("python", "python:3.11", True),
        ("python", f"python@{DIGEST}", True),
        ("python", "python:5000/evil", False),
        # Any image of the repository may stand behind a digest.
        ("python:*", f"python@{DIGEST}", True),
        ("python:3.*", f"python:3.11@{DIGEST}", False),
        ("python:3.11", f"python:3.11@{DIGEST}", False),
        ("python:3.*", "python:3.11", True),
        ("python:3.*", "python", False),
        ("python:latest", "python", True),
        (f"python@{DIGEST}", f"python@{DIGEST}", True),
        (f"python@{DIGEST}", f"python:3@{DIGEST}", True),
        (f"python:3@{DIGEST}", f"python@{DIGEST}", True),
        (f"python@{DIGEST}", f"python@{OTHER}", False),
        (f"python@{DIGEST}", "python:3", False),
        (f"python@{DIGEST}", f"evil/python@{DIGEST}", False),
        ("python@sha256:*", f"python@{OTHER}", True),
        ("python@sha256:*", "python:3", False),
        # A star is characters of one part.
        ("reg.example.org:5000/ml/*", "reg.example.org:5000/ml/torch:2", True),
        ("reg.example.org:5000/ml/*", "reg.example.org:5000/other", False),
        ("reg.example.org:5000/ml/*", "reg.example.org:5000/ml/a/b", False),
        ("reg.example.org:5000/ml/*", "reg.example.org/ml/torch", False),
        ("reg.example.org/ml/*", "reg.example.org:5000/ml/torch", False),
        ("reg.example.org/ml/*", "reg.example.org.evil.org/ml/torch", False),
        ("reg.example.org/ml/*:2.*", "reg.example.org/ml/torch:2.1", True),
        ("reg.example.org/ml/*:2.*", "reg.example.org/ml/torch:3", False),
        ("*.example.org/ml/*", "reg.example.org/ml/torch", True),
        ("*.example.org/ml/*", "evil.org/x.example.org/ml/torch", False),
        ("*", "python:3", True),
        ("*", "evil/python", False),
        ("*", "evil.org/python", False),
        ("*/*", "evil.org/python", False),
        ("PYTHON:*", "python:3", False),
        ("python:*\n", "python:3", False),
        ("", "python", False),
    ],
)
def test_patterns(pattern: str, image: str, allowed: bool) -> None:
    assert ContainerPolicy(images=(pattern,)).allows_image(image) is allowed


def test_any_image_where_no_pattern_is_set() -> None:
    assert ContainerPolicy().allows_image("python:5000/evil")
