"""Pictures on a run's page."""

from base64 import b64encode

from prefect.artifacts import create_image_artifact


def show_picture(png: bytes, *, key: str, description: str) -> None:
    """Put *png* on the run's page; it travels inside the artifact, so no file has to be served."""
    create_image_artifact(picture_url(png), key=key, description=description)


def picture_url(png: bytes) -> str:
    """*png* as an address that holds the picture itself."""
    return f"data:image/png;base64,{b64encode(png).decode()}"
