"""Pictures on a run's page."""

from base64 import b64encode

from prefect.artifacts import create_markdown_artifact


def show_picture(png: bytes, *, key: str, description: str) -> None:
    """Put *png* on the run's page; it travels inside the artifact, so no file has to be served."""
    create_markdown_artifact(picture_text(png, description), key=key, description=description)


def picture_text(png: bytes, description: str) -> str:
    """Markdown that holds *png* itself.

    Below an image artifact Prefect prints the image's address, here all of its data.
    """
    return f"![{description}](data:image/png;base64,{b64encode(png).decode()})"
