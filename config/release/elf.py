# SPDX-License-Identifier: Apache-2.0
"""What a program needs to start, from its ELF headers: of any machine, without running anything."""

import dataclasses
import struct

PT_DYNAMIC, PT_INTERP, PT_LOAD = 2, 3, 1
DT_NEEDED, DT_STRTAB = 1, 5


@dataclasses.dataclass(frozen=True)
class Needs:
    """The loader, if there is one, and the names of shared libraries."""

    loader: str | None
    libraries: tuple[str, ...]


def needs(data: bytes) -> Needs:
    """Reads a 64-bit little-endian ELF file; anything else, as a script, needs nothing."""
    if data[:6] != b"\x7fELF\x02\x01":
        return Needs(None, ())
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, offset + index * size) for index in range(count)]
    # type, flags, offset, virtual address, physical address, size in the file, size in memory, alignment
    loads = [(address, at, length) for kind, _, at, address, _, length, _, _ in headers if kind == PT_LOAD]
    loader, dynamic = None, []
    for kind, _, at, _, _, length, _, _ in headers:
        if kind == PT_INTERP:
            loader = data[at : at + length].rstrip(b"\0").decode()
        elif kind == PT_DYNAMIC:
            dynamic = [struct.unpack_from("<QQ", data, at + step) for step in range(0, length, 16)]
    table = next((value for tag, value in dynamic if tag == DT_STRTAB), None)
    names = [value for tag, value in dynamic if tag == DT_NEEDED]
    if table is None or not names:
        return Needs(loader, ())
    strings = next(table - address + at for address, at, length in loads if address <= table < address + length)

    def text(at: int) -> str:
        return data[strings + at : data.index(b"\0", strings + at)].decode()

    return Needs(loader, tuple(text(name) for name in names))
