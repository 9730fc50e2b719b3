"""A log in pieces by offset: whatever offset is asked for, no part of a secret is given."""

from pathlib import Path

import pytest

from headway.run.here import PIECE_BYTES, container_name, log_path, log_piece
from headway.runtime import secretfiles
from headway.runtime.logfile import punch_hole
from headway.settings import Settings

RUN = "0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11"
SECRET = "s3cret-of-the-team"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path)
    log_path(made, RUN, 1).parent.mkdir(parents=True)
    return made


def write(settings: Settings, data: bytes, *, secret: bool = False) -> Path:
    path = log_path(settings, RUN, 1)
    path.write_bytes(data)
    if secret:
        folder = settings.secrets_dir / container_name(RUN, 1)
        secretfiles.write(folder, {"KEY": SECRET}, None)
    return path


def test_pieces_follow_each_other_without_a_gap(settings: Settings) -> None:
    data = bytes(range(256)) * 3000
    write(settings, data)
    read, offset = b"", 0
    while piece := log_piece(settings, RUN, 1, offset).data:
        read += piece
        offset += len(piece)
    assert read == data
    assert log_piece(settings, RUN, 1, 10**17).data == b""


def test_from_no_offset_on_is_any_of_a_secret_read(settings: Settings) -> None:
    before, after = b"before ", b" after"
    write(settings, before + SECRET.encode() + after, secret=True)
    clean = before + b"*" * len(SECRET) + after
    for offset in range(len(clean)):
        piece = log_piece(settings, RUN, 1, offset)
        assert (piece.start, piece.data) == (offset, clean[offset:])


def test_the_beginning_of_a_secret_waits_for_its_end(settings: Settings) -> None:
    half = len(SECRET) // 2
    path = write(settings, b"key " + SECRET[:half].encode(), secret=True)
    piece = log_piece(settings, RUN, 1, 0)
    assert piece.data == b"key "
    with path.open("ab") as log:
        log.write(SECRET[half:].encode() + b"\n")
    assert log_piece(settings, RUN, 1, piece.end).data == b"*" * len(SECRET) + b"\n"
    path.write_bytes(b"key " + SECRET[:half].encode())
    assert log_piece(settings, RUN, 1, 0, whole=True).data == b"key " + SECRET[:half].encode()


def test_a_secret_between_two_pieces_is_struck_out_in_both(settings: Settings) -> None:
    data = b"x" * (PIECE_BYTES - 5) + SECRET.encode() + b"y" * PIECE_BYTES
    write(settings, data, secret=True)
    read, offset = b"", 0
    while piece := log_piece(settings, RUN, 1, offset, whole=True).data:
        read += piece
        offset += len(piece)
    assert read == data.replace(SECRET.encode(), b"*" * len(SECRET))


def test_what_was_given_up_is_passed_over_and_said(settings: Settings) -> None:
    path = write(settings, b"a" * 8192 + b"end")
    with path.open("r+b") as log:
        punch_hole(log.fileno(), 0, 8192)
    piece = log_piece(settings, RUN, 1, 100)
    assert (piece.start, piece.data) == (8192, b"end")


def test_a_link_that_the_program_put_there_is_no_log(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("canary")
    log_path(settings, RUN, 1).symlink_to(tmp_path / "canary")
    assert log_piece(settings, RUN, 1, 0).data == b""
