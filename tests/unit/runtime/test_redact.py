"""Secrets in logs: every form, every border between two reads, and the file on the disk."""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from headway.runtime import redact
from headway.runtime.redact import FileRedactor, Redactor

VALUE = "p4ss/wörd+with spaces?"
RAW = VALUE.encode()
KEY = "-----BEGIN KEY-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END KEY-----\n"

WRITTEN = {
    "plain": RAW,
    "url": quote(VALUE, safe="").encode(),
    "path": quote(VALUE).encode(),
    "form": quote_plus(VALUE).encode(),
    "json": json.dumps(VALUE)[1:-1].encode(),
    "base64": base64.b64encode(RAW),
    "base64 for urls": base64.urlsafe_b64encode(RAW),
}


def struck(data: bytes, *values: bytes) -> bytes:
    redactor = Redactor(values)
    return redactor.feed(data) + redactor.rest()


@pytest.mark.parametrize("form", WRITTEN, ids=str)
def test_a_secret_is_struck_out_in_every_form(form: str) -> None:
    text = b"before " + WRITTEN[form] + b" after\n"
    found = struck(text, RAW)
    assert len(found) == len(text)
    assert found.startswith(b"before *")
    assert found.endswith(b"* after\n") or form.startswith("base64")
    assert WRITTEN[form][:6] not in found
    assert set(found[7:-8]) <= set(b"*=")


@pytest.mark.parametrize("user", ["u", "me", "abc"])
def test_basic_authentication_does_not_tell_it(user: str) -> None:
    header = base64.b64encode(f"{user}:".encode() + RAW)
    found = struck(b"Authorization: Basic " + header + b"\n", RAW)
    left = found.split()[-1].replace(b"*", b"")
    assert len(left) <= len(base64.b64encode(f"{user}:xx".encode()))


def test_each_line_of_a_key_is_struck_out() -> None:
    log = "".join(f"INFO {line}\n" for line in KEY.splitlines()).encode()
    assert struck(log, KEY.encode()) == b"".join(
        b"INFO " + b"*" * len(line) + b"\n" for line in KEY.splitlines()
    )


def test_every_border_between_two_reads() -> None:
    text = b"a " + RAW + b" b " + RAW + RAW + b" c"
    whole = struck(text, RAW)
    for at in range(len(text)):
        redactor = Redactor([RAW])
        first = redactor.feed(text[:at])
        assert RAW[:4] not in first
        assert first + redactor.feed(text[at:]) + redactor.rest() == whole
    redactor = Redactor([RAW])
    pieces = [redactor.feed(text[at : at + 1]) for at in range(len(text))]
    assert b"".join([*pieces, redactor.rest()]) == whole


def test_secrets_that_overlap_leave_nothing() -> None:
    assert struck(b"abcdefgh", b"abcde", b"cdefgh") == b"*" * 8
    redactor = Redactor([b"abcde", b"cdefgh"])
    assert redactor.feed(b"abcde") + redactor.feed(b"fgh") + redactor.rest() == b"*" * 8


def test_what_is_no_secret_passes_at_once() -> None:
    redactor = Redactor([RAW])
    assert redactor.feed(b"iteration 1 of 100\n") == b"iteration 1 of 100\n"
    assert redactor.feed(b"p4") == b""
    assert redactor.feed(b" is no secret\n") == b"p4 is no secret\n"
    assert Redactor([]).feed(b"anything") == b"anything"


def test_the_file_is_struck_out_while_its_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "_CHUNK_BYTES", 64)
    path = tmp_path / "log"
    redactor = FileRedactor(path, [RAW])
    redactor.redact()  # not there yet
    written = b""
    for piece in (b"x" * 60 + RAW[:5], RAW[5:] + b" and ", RAW + b"y" * 200, RAW, b" end\n"):
        with path.open("ab") as log:
            log.write(piece)
        written += piece
        redactor.redact()
    assert path.read_bytes() == struck(written, RAW)
    assert RAW[:4] not in path.read_bytes()


def test_a_file_that_grows_faster_than_it_is_read_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "_CHUNK_BYTES", 64)
    path, found = tmp_path / "log", redact._found
    path.write_bytes(RAW + b"x" * 100)

    def growing(forms: Sequence[bytes], text: bytes) -> Iterator[tuple[int, int]]:
        with path.open("ab") as log:
            log.write(b"y" * 1000)
        assert path.stat().st_size < 100_000
        return found(forms, text)

    monkeypatch.setattr(redact, "_found", growing)
    FileRedactor(path, [RAW]).redact()
    assert path.read_bytes().startswith(b"*" * len(RAW) + b"x")


def test_nothing_but_a_file_is_touched(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(RAW)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(victim)
    FileRedactor(tmp_path / "pipe", [RAW]).redact()
    FileRedactor(tmp_path / "link", [RAW]).redact()
    assert victim.read_bytes() == RAW


def test_what_was_given_up_of_a_log_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.seek(1 << 42)  # to read so many zeros takes an hour
        log.write(b"key " + RAW)
    FileRedactor(path, [RAW]).redact()
    with path.open("rb") as log:
        log.seek(1 << 42)
        assert log.read() == b"key " + b"*" * len(RAW)
