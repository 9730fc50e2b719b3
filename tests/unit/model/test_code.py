"""A manifest that a client sends is refused where its files could lie elsewhere, or be too much."""

import hashlib
import json
from typing import Any

import pytest

from headway.errors import InvalidInput
from headway.model import sent_files
from headway.model.code import CODE, CodeManifest
from headway.model.code_frames import MOST_FRAMES, MOST_FRAMES_BYTES, joined, split
from headway.model.sent_files import SentFile
from headway.model.upload import UploadManifest
from headway.units import MIB

ONE = hashlib.sha256(b"1").hexdigest()
TWO = hashlib.sha256(b"2").hexdigest()


def sent(*files: Any, commit: Any = "", diff: Any = "") -> bytes:
    document = {"commit": commit, "diff": diff, "files": list(files)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def file(path: Any, size: Any = 1, executable: Any = False, chunks: Any = (ONE,)) -> list[Any]:
    return [path, size, executable, list(chunks)]


def test_what_was_written_is_read() -> None:
    files = [SentFile("src/b.py", 1, (ONE,), executable=True), SentFile("empty", 0, ())]
    written = CodeManifest.of(files, commit="c0ffee", diff="a diff\nof é")
    read = CodeManifest.read(written.text)
    assert read == written
    assert read.content_id == hashlib.sha256(written.text).hexdigest()
    assert [each.path for each in read.files] == ["empty", "src/b.py"]
    assert read.chunks == {ONE: 1}


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../up", "a/../../b", "a//b", "./a", "a/.", "a/", "..", "a\0b", "a\nb",
        "a\x1b[2Jb", "a\u202eb", "C:\\x", "a\\..\\b", "x" * 256, "/".join("a" * 40), "é" * 600,
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_or_shows_as_another_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        CodeManifest.read(sent(file(path)))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Train.py", "train.py"), ("e\u0301.py", "\u00e9.py"), ("Src/a", "src/b"), ("ß", "ss")],
)
def test_two_names_that_another_file_system_takes_for_one_are_refused(one: str, other: str) -> None:
    files = sorted((file(one), file(other)), key=lambda each: each[0].encode())
    with pytest.raises(InvalidInput, match="case or Unicode form"):
        CodeManifest.read(sent(*files))


@pytest.mark.parametrize(
    "text",
    [
        sent(),
        sent(file("a"), file("a")),
        sent(file("b"), file("a")),
        sent(file("a"), file("a/b")),
        sent(file("a", size=2), file("b", size=1)),
        sent(file("a", size=-1, chunks=())),
        sent(file("a", size=0)),
        sent(file("a", size=True)),
        sent(file("a", executable=1)),
        sent(file("a", chunks=[ONE.upper()])),
        sent(file("a", chunks=["../../../../etc/passwd"])),
        sent(file("a", chunks=[ONE, TWO])),
        sent(["a", 1, False, [ONE], "link"]),
        sent(file("a"), commit="$(touch x)"),
        sent(file("a"), diff="x" * (64 * 1024 + 1)),
        sent(file("a"), diff=None),
        sent(file("a"))[:-1],
        sent(file("a")).replace(b",", b", "),
        b"[]",
        b"\xff",
        b'{"commit":"","diff":"","files":[["\\ud800",1,false,["' + ONE.encode() + b'"]]]}',
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        CodeManifest.read(text)


def test_one_chunk_named_a_million_times_is_no_large_file() -> None:
    """The bomb that an archive would be: little is sent, and much is written."""
    many = CODE.size_bytes // CODE.chunk_bytes + 1
    with pytest.raises(InvalidInput):
        CodeManifest.read(sent(file("big", many * CODE.chunk_bytes, chunks=[ONE] * many)))
    half = [
        file(f"{number}", 8 * CODE.chunk_bytes, chunks=[ONE] * 8)
        for number in range(CODE.size_bytes // (8 * CODE.chunk_bytes) + 1)
    ]
    with pytest.raises(InvalidInput, match="travel"):
        CodeManifest.read(sent(*half))


def test_too_many_files_are_refused() -> None:
    files = [file(f"{number:06}") for number in range(CODE.files + 1)]
    with pytest.raises(InvalidInput, match="files travel"):
        CodeManifest.read(sent(*files))
    with pytest.raises(InvalidInput, match=r"at most 4\.0 MiB"):
        CodeManifest.read(sent(*(file(f"{number:06}") for number in range(100_000))))


def test_too_much_names_the_largest() -> None:
    def of(path: str, mebibytes: int) -> SentFile:
        count = mebibytes * MIB // CODE.chunk_bytes
        return SentFile(path, mebibytes * MIB, (ONE,) * count)

    with pytest.raises(InvalidInput, match=r"largest are big \(88 MiB\), middle \(8.0 MiB\)"):
        CodeManifest.of([of("small", 4), of("middle", 8), of("big", 88), of("other", 4)])


@pytest.mark.parametrize("chunks", [[], [b"a"], [b"a" * CODE.chunk_bytes] * 3, [b"ab"] * 5000])
def test_chunks_come_apart_as_they_were_joined(chunks: list[bytes]) -> None:
    bodies = list(joined(chunks))
    assert [each for body in bodies for each in split(body)] == chunks
    assert all(len(body) <= MOST_FRAMES_BYTES for body in bodies)


@pytest.mark.parametrize(
    "body", [b"\0", b"\0\0\0\0", b"\0\0\0\2a", b"\xff\xff\xff\xff" + b"a" * 100, b"\0\0\0\1ab"]
)
def test_frames_that_are_cut_or_lie_about_their_length_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        list(split(body))


def test_too_many_at_once_are_refused_and_sent_apart() -> None:
    chunks = [b"1"] * (MOST_FRAMES + 1)
    bodies = list(joined(chunks))
    assert [len(list(split(body))) for body in bodies] == [MOST_FRAMES, 1]
    with pytest.raises(InvalidInput, match="at most 1024 at once"):
        list(split(b"".join(bodies)))


def test_very_many_folders_are_refused_before_they_are_made() -> None:
    """800 kB of paths would be 300,000 folders of 4 KiB each."""
    deep = "/".join("abcdefghijklmnopqrstuvwxyz1234")
    files = [SentFile(f"{number:05}/{deep}", 0, ()) for number in range(9_000)]
    with pytest.raises(InvalidInput, match="at most 10,000 folders travel"):
        CodeManifest.of(files)
    assert len(CodeManifest.of(files[:300]).files) == 300


@pytest.mark.parametrize("entry", ["[]", "{}", '""', "0"])
@pytest.mark.parametrize("kind", [CodeManifest, UploadManifest])
def test_a_list_of_more_entries_than_any_has_is_not_parsed(
    entry: str, kind: type[CodeManifest | UploadManifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_files, "read_strict", lambda _: pytest.fail("it was parsed"))
    text = "[" + ",".join([entry] * 2_100_000) + "]"
    with pytest.raises(InvalidInput):
        kind.read(text.encode())
