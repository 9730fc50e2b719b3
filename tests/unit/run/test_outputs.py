"""Outputs that a hostile program wrote: what is listed and opened, and what is not."""

import os
import socket
import threading
from pathlib import Path

import pytest

from headway.model import run_file
from headway.model.run_file import name_from
from headway.run import outputs
from headway.run.outputs import list_outputs, open_output, opened_output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "outputs" / "deep").mkdir(parents=True)
    (tmp_path / "outputs" / "model.pt").write_bytes(b"weights")
    (tmp_path / "outputs" / "deep" / "log.txt").write_bytes(b"")
    return tmp_path


def names(folder: Path) -> list[bytes]:
    found = list_outputs(folder)
    assert found is not None
    return [each.name for each in found.files]


def test_files_are_listed_with_their_sizes_in_the_order_of_their_names(run: Path) -> None:
    found = list_outputs(run)
    assert found is not None
    assert [(each.name, each.size_bytes) for each in found.files] == [
        (b"deep/log.txt", 0), (b"model.pt", 7),
    ]  # fmt: skip
    assert (found.complete, found.left_out) == (True, 0)


def test_a_run_without_a_folder_has_no_list(tmp_path: Path) -> None:
    assert list_outputs(tmp_path / "nobody") is None
    assert list_outputs(tmp_path) is None


HOSTILE = [b"new\nline", b"\x1b]0;title\x07", b"\xff\xfe", "ünï".encode(), b"a%2e%2e", b" ", b"-rf"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_bytes_are_a_name_and_come_back_as_they_were(run: Path, name: bytes) -> None:
    (run / "outputs" / os.fsdecode(name)).write_bytes(b"kept")
    found = list_outputs(run)
    assert found is not None
    listed = next(each for each in found.files if each.name == name)
    assert name_from(listed.href) == name
    listed.path.encode()  # what people are shown is text
    with opened_output(run, name) as opened:
        assert opened.piece(0, 100) == b"kept"


def test_links_sockets_and_pipes_are_left_out_and_not_opened(run: Path) -> None:
    top = run / "outputs"
    (run / "secret").write_text("canary")
    (top / "link").symlink_to(run / "secret")
    (top / "folder").symlink_to("/etc")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(top / "socket"))
    found = list_outputs(run)
    assert found is not None
    assert [each.name for each in found.files] == [b"deep/log.txt", b"model.pt"]
    assert found.left_out == 4
    for name in (b"link", b"folder/passwd", b"pipe", b"socket", b"deep", b"nobody"):
        with pytest.raises(OSError):
            open_output(run, name)


def test_the_folder_of_the_outputs_itself_may_be_no_link(tmp_path: Path) -> None:
    (tmp_path / "outputs").symlink_to("/etc")
    assert list_outputs(tmp_path) is None
    with pytest.raises(OSError):
        open_output(tmp_path, b"passwd")


@pytest.mark.parametrize(
    "href",
    ["", "..", "../secret", "a/../../b", "/etc/passwd", "a//b", "%2e%2e/x", "a/%2E%2E/b", "%00",
     "./a", "a/", "a" * 5000, "a/" * 70 + "b"],
)  # fmt: skip
def test_an_address_that_leads_elsewhere_names_nothing(href: str) -> None:
    assert name_from(href) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_a_second_name_of_somebody_elses_file_is_left_out(run: Path) -> None:
    theirs = run / "theirs"
    theirs.write_text("canary")
    os.chown(theirs, 12345, 12345)
    os.link(theirs, run / "outputs" / "mine")
    os.link(run / "outputs" / "model.pt", run / "outputs" / "again.pt")
    assert names(run) == [b"again.pt", b"deep/log.txt", b"model.pt"]
    with pytest.raises(OSError):
        open_output(run, b"mine")


def test_a_folder_that_is_swapped_for_a_link_never_leads_outside(run: Path) -> None:
    outside = run / "outside"
    outside.mkdir()
    (outside / "log.txt").write_bytes(b"canary")
    deep, aside, link = (run / "outputs" / each for each in ("deep", "aside", "link"))
    link.symlink_to(outside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            deep.rename(aside)
            link.rename(deep)
            deep.rename(link)
            aside.rename(deep)

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = 0
    try:
        for _ in range(3000):
            try:
                with opened_output(run, b"deep/log.txt") as opened:
                    assert opened.piece(0, 10) == b""
            except OSError:
                refused += 1
            listed = list_outputs(run)
            assert listed is not None
            assert all(each.size_bytes != 6 for each in listed.files)
    finally:
        over.set()
        swapping.join()
    assert 0 < refused < 3000  # else nothing was swapped in time, or nothing was opened


def test_a_file_of_a_terabyte_of_nothing_is_listed_without_being_read(run: Path) -> None:
    with (run / "outputs" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    found = list_outputs(run)
    assert found is not None
    assert found.files[-1].size_bytes == 1 << 40
    with opened_output(run, b"sparse") as opened:
        assert opened.piece((1 << 40) - 4, 100) == b"\0\0\0\0"


def test_a_file_that_changes_while_it_is_read_has_no_digest(run: Path) -> None:
    path = run / "outputs" / "model.pt"
    with opened_output(run, b"model.pt") as opened:
        assert opened.sha256() is not None
        path.write_bytes(b"longer than it was")
        assert opened.sha256() is None


def test_more_files_than_are_listed_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_FILES", 3)
    for number in range(5):
        (run / "outputs" / f"{number}").touch()
    found = list_outputs(run)
    assert found is not None
    assert (len(found.files), found.complete) == (3, False)


def test_folders_deeper_than_any_path_are_not_gone_into(run: Path) -> None:
    here = os.open(run / "outputs", os.O_RDONLY)
    for _ in range(run_file.MOST_FOLDERS + 5):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("hidden", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    found = list_outputs(run)
    assert found is not None
    assert (len(found.files), found.complete) == (2, False)


def test_a_digest_is_given_up_when_nobody_waits_for_it(tmp_path: Path) -> None:
    """A program may leave a sparse file of fifteen terabytes, which costs it nothing."""
    (tmp_path / "outputs").mkdir()
    with (tmp_path / "outputs" / "sparse").open("wb") as sparse:
        sparse.truncate(15 << 40)
    asked = iter([False, False, True])
    with opened_output(tmp_path, b"sparse") as opened:
        assert opened.sha256(lambda: next(asked)) is None


def test_the_names_of_a_list_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outputs").mkdir()
    for number in range(10):
        (tmp_path / "outputs" / f"{number}{'n' * 99}").touch()
    monkeypatch.setattr(outputs, "_MOST_NAMES_BYTES", 350)
    found = list_outputs(tmp_path)
    assert found is not None
    assert (len(found.files), found.complete) == (4, False)
