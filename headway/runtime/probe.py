"""An image of one tiny program, to ask the engine questions where nothing can be pulled.

The program is a bare ELF file that exits with 0: 132 bytes, no libraries.
"""

import io
import struct
import tarfile

IMAGE = "headway/probe:1"
COMMAND = ["/true"]

# machine (ELF e_machine), code for exit(0)
_PROGRAMS = {
    "x86_64": (62, bytes.fromhex("b83c00000031ff0f05")),  # mov eax,60; xor edi,edi; syscall
    "aarch64": (183, bytes.fromhex("a80b8052000080d2010000d4")),  # mov x8,93; x0,0; svc 0
}
_BASE = 0x400000
_HEADERS_BYTES = 64 + 56


def root(architecture: str) -> bytes:
    """A tar with ``/true`` for *architecture* (``x86_64`` or ``aarch64``)."""
    content = _elf(*_PROGRAMS[architecture])
    info = tarfile.TarInfo("true")
    info.size, info.mode = len(content), 0o755
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _elf(machine: int, code: bytes) -> bytes:
    """A 64-bit little-endian executable with one loaded segment, the whole file."""
    size = _HEADERS_BYTES + len(code)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, _BASE + _HEADERS_BYTES, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + code
