"""What `headway ssh` starts in a container: a server of SFTP, or one connection to a port.

    headway_ssh.py sftp
    headway_ssh.py connect HOST PORT

On standard input and output. It needs Python 3.8 and nothing else; names of files are bytes.
SFTP is version 3 (draft-ietf-secsh-filexfer-02), as OpenSSH speaks it.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import threading
from typing import Any, BinaryIO, Callable, Dict, Optional, Tuple

_PIECE_BYTES = 1 << 16
_MOST_BYTES = 1 << 18
"""Of one packet, as with OpenSSH."""
_OK, _END, _MISSING, _DENIED, _FAILED, _UNKNOWN = 0, 1, 2, 3, 4, 8
_STATUS, _HANDLE, _DATA, _NAME, _ATTRIBUTES = range(101, 106)
_SIZE, _OWNER, _MODE, _TIMES, _EXTENDED = 1, 2, 4, 8, 1 << 31
_READ, _WRITE, _APPEND, _CREATE, _TRUNCATE, _EXCLUSIVE = (1 << bit for bit in range(6))
_REPLACE = b"posix-rename@openssh.com"
_Answer = Tuple[int, bytes]


class _Packet:
    """A packet that is read from its beginning on."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def numbers(self, form: str) -> tuple[int, ...]:
        """The next numbers, as `struct` calls their form."""
        found = struct.unpack_from(">" + form, self._content, self._at)
        self._at += struct.calcsize(">" + form)
        return found

    def number(self, form: str = "I") -> int:
        """The next number."""
        return self.numbers(form)[0]

    def text(self) -> bytes:
        """The next name, handle or piece of a file."""
        length = self.number()
        found = self._content[self._at : self._at + length]
        self._at += length
        return found

    def attributes(self) -> list[tuple[int, ...] | None]:
        """Size, owner and group, mode, times of access and change: each None where left out."""
        flags = self.number()
        forms = ((_SIZE, "Q"), (_OWNER, "II"), (_MODE, "I"), (_TIMES, "II"))
        return [self.numbers(form) if flags & flag else None for flag, form in forms]


def _text(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _written(found: os.stat_result) -> bytes:
    owner = found.st_uid, found.st_gid
    times = (int(each) & 0xFFFFFFFF for each in (found.st_atime, found.st_mtime))
    known = _SIZE | _OWNER | _MODE | _TIMES
    return struct.pack(">IQ5I", known, found.st_size, *owner, found.st_mode, *times)


def _named(name: bytes, found: os.stat_result) -> bytes:
    numbers = (found.st_nlink, found.st_uid, found.st_gid, found.st_size)
    told = "{} {:4} {} {} {} ".format(stat.filemode(found.st_mode), *numbers)
    return _text(name) + _text(told.encode() + name) + _written(found)


class Sftp:
    """Answers packets; handles are numbers of open files, and names of open folders."""

    def __init__(self) -> None:
        self._folders: dict[bytes, tuple[bytes, list[bytes]]] = {}
        self._made = 0

    def answer(self, kind: int, packet: _Packet) -> _Answer:
        """The kind and content of what answers a packet of *kind*."""
        ask = self._ASKS.get(kind)
        if ask is None:
            return _status(_UNKNOWN, "not known here")
        try:
            return ask(self, packet) or _status(_OK)
        except EOFError:
            return _status(_END)
        except OSError as error:
            codes = {FileNotFoundError: _MISSING, PermissionError: _DENIED}
            return _status(codes.get(type(error), _FAILED), error.strerror or str(error))
        except (KeyError, ValueError, struct.error):
            return _status(_FAILED, "no packet that can be done")

    def _open(self, packet: _Packet) -> _Answer:
        path, asked = packet.text(), packet.number()
        mode = packet.attributes()[2]
        flags = (os.O_RDWR if asked & _READ else os.O_WRONLY) if asked & _WRITE else os.O_RDONLY
        for bit, flag in (
            (_APPEND, os.O_APPEND), (_CREATE, os.O_CREAT),
            (_TRUNCATE, os.O_TRUNC), (_EXCLUSIVE, os.O_EXCL),
        ):  # fmt: skip
            flags |= flag if asked & bit else 0
        opened = os.open(path, flags | os.O_CLOEXEC, 0o666 if mode is None else mode[0] & 0o7777)
        return _HANDLE, _text(b"%d" % opened)

    def _close(self, packet: _Packet) -> None:
        handle = packet.text()
        if self._folders.pop(handle, None) is None:
            os.close(int(handle))

    def _read(self, packet: _Packet) -> _Answer:
        opened = int(packet.text())
        at, length = packet.numbers("QI")
        data = os.pread(opened, min(length, _MOST_BYTES - 1024), at)
        if not data:
            raise EOFError
        return _DATA, _text(data)

    def _write(self, packet: _Packet) -> None:
        opened, at, data = int(packet.text()), packet.number("Q"), memoryview(packet.text())
        while data:
            done = os.pwrite(opened, data, at)
            at, data = at + done, data[done:]

    def _look(self, found: os.stat_result) -> _Answer:
        return _ATTRIBUTES, _written(found)

    def _change(self, packet: _Packet, place: bytes | int) -> None:
        size, owner, mode, times = packet.attributes()
        if size is not None:
            os.truncate(place, *size)
        if mode is not None:
            os.chmod(place, stat.S_IMODE(*mode))
        if times is not None:
            os.utime(place, (times[0], times[1]))
        if owner is not None:
            os.chown(place, owner[0], owner[1])

    def _open_folder(self, packet: _Packet) -> _Answer:
        path = packet.text()
        self._made += 1
        handle = b"folder %d" % self._made
        self._folders[handle] = path, [b".", b"..", *os.listdir(path)]
        return _HANDLE, _text(handle)

    def _read_folder(self, packet: _Packet) -> _Answer:
        path, names = self._folders[packet.text()]
        if not names:
            raise EOFError
        rows = []
        for name in names[:100]:
            try:
                rows.append(_named(name, os.lstat(os.path.join(path, name))))
            except OSError:  # it has gone meanwhile
                continue
        del names[:100]
        return _NAME, struct.pack(">I", len(rows)) + b"".join(rows)

    def _is_at(self, path: bytes) -> _Answer:
        return _NAME, struct.pack(">I", 1) + _text(path) + _text(path) + struct.pack(">I", 0)

    def _rename(self, packet: _Packet) -> None:
        before, after = packet.text(), packet.text()
        if os.path.lexists(after):  # what version 3 asks for
            raise FileExistsError(17, "there is one of that name")
        os.rename(before, after)

    def _make_link(self, packet: _Packet) -> None:
        target, link = packet.text(), packet.text()  # OpenSSH's order, which all others follow
        os.symlink(target, link)

    def _more(self, packet: _Packet) -> _Answer | None:
        if packet.text() != _REPLACE:
            return _status(_UNKNOWN, "not known here")
        os.replace(packet.text(), packet.text())
        return None

    _ASKS: Dict[int, Callable[[Any, _Packet], Optional[_Answer]]] = {  # noqa: RUF012 - constant
        3: _open, 4: _close, 5: _read, 6: _write,
        7: lambda self, packet: self._look(os.lstat(packet.text())),
        8: lambda self, packet: self._look(os.fstat(int(packet.text()))),
        9: lambda self, packet: self._change(packet, packet.text()),
        10: lambda self, packet: self._change(packet, int(packet.text())),
        11: _open_folder, 12: _read_folder,
        13: lambda _, packet: os.remove(packet.text()),
        14: lambda _, packet: os.mkdir(packet.text()),
        15: lambda _, packet: os.rmdir(packet.text()),
        16: lambda self, packet: self._is_at(os.path.realpath(packet.text())),
        17: lambda self, packet: self._look(os.stat(packet.text())),
        18: _rename, 19: lambda self, packet: self._is_at(os.readlink(packet.text())),
        20: _make_link, 200: _more,
    }  # fmt: skip


def _status(code: int, why: str = "") -> _Answer:
    return _STATUS, struct.pack(">I", code) + _text(why.encode("utf-8", "replace")) + _text(b"")


def serve_files(given: BinaryIO, told: BinaryIO) -> None:
    """Answer all that comes in at *given*, two binary files."""
    sftp = Sftp()
    while len(head := given.read(5)) == 5:
        length, kind = struct.unpack(">IB", head)
        if not 0 < length <= _MOST_BYTES:
            raise SystemExit("this is no packet of SFTP")
        packet = _Packet(given.read(length - 1))
        if kind == 1:
            answer, content = 2, struct.pack(">I", 3) + _text(_REPLACE) + _text(b"1")
        else:
            number = packet.number()
            answer, content = sftp.answer(kind, packet)
            content = struct.pack(">I", number) + content
        told.write(struct.pack(">IB", len(content) + 1, answer) + content)
        told.flush()


def connect(host: str, port: int) -> None:
    """Carry bytes between the standard streams and a port, until both sides have ended.

    Standard output has frames: two bytes that say how long it is before each. An empty one is the
    end of what comes from there; it goes on to be given what comes in.
    """
    there = socket.create_connection((host, port), timeout=30)
    there.settimeout(None)

    def give() -> None:
        try:
            while data := os.read(0, _PIECE_BYTES):
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it takes no more

    giving = threading.Thread(target=give, daemon=True)
    giving.start()
    told = b"more"
    while told:
        told = there.recv(_PIECE_BYTES - 1)
        frame = memoryview(struct.pack(">H", len(told)) + told)
        while frame:
            frame = frame[os.write(1, frame) :]
    giving.join()


if __name__ == "__main__":
    if sys.argv[1] == "sftp":
        serve_files(sys.stdin.buffer, sys.stdout.buffer)
    else:
        connect(sys.argv[2], int(sys.argv[3]))
