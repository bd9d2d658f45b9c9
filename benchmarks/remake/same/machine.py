"""Comparison of machine code: binaries for NVIDIA GPUs section by section, assembly for AMD GPUs line by line.

Names of files and functions, numbers of lines, and data that no instruction reads are no machine code.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Sections of a cubin that no instruction depends on. `.nv.capmerc` and `.nv.merc` are copies of other sections
#: that ptxas keeps for tools.
UNREAD = re.compile(
    r"\.(symtab|strtab|shstrtab|debug|nv_debug|note|rela?\.debug|rela?\.nv_debug|nv\.callgraph|nv\.prototype|nv\.rel)"
)
#: Global variables, and the bank of constants with their addresses.
DATA = re.compile(r"\.(rela?\.)?nv\.(global|constant4)")
#: Attributes of kernels in `.nv.info` whose first word is the number of a symbol.
WITH_SYMBOL = frozenset((0x0A, 0x0F, 0x11, 0x12, 0x23, 0x2F))
#: A format of attributes: the value is of any length. Others have two bytes.
SIZED = 0x04


class Section(NamedTuple):
    """A section of an ELF file: its content, and its size where it has none."""

    kind: int
    content: bytes
    size: int


def differences(old: bytes, new: bytes, form: str, symbols: tuple[str, str]) -> list[str]:
    """What differs between the machine code of two kernels; nothing for the same code.

    Args:
        old, new: The compiled kernels.
        form: "cubin", or "amdgcn" for text.
        symbols: The kernels' names in them.
    """
    if old == new:
        return []
    if form != "cubin":
        return [] if _instructions(old, symbols[0]) == _instructions(new, symbols[1]) else ["the assembly"]
    before, after = _parts(old, symbols[0]), _parts(new, symbols[1])
    names = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    others = [name for name in names if not DATA.match(name)]
    # Where all else is the same, one look at the instructions is enough for both.
    if len(others) < len(names) and (others or not _reads_data(old)):
        names = others
    return [_told(name, before.get(name), after.get(name)) for name in names]


def _told(name: str, old: Any, new: Any) -> str:
    sizes = ["none" if each is None else f"{len(each)} bytes" for each in (old, new)]
    what = "machine code" if name.startswith(".text") else name
    return f"{what} ({sizes[0]}, now {sizes[1]})" if sizes[0] != sizes[1] else f"{what} ({sizes[0]})"


# Cubins.


def _parts(cubin: bytes, symbol: str) -> dict[str, bytes]:
    """The sections that instructions and launches depend on, by names in which the kernel is called KERNEL."""
    sections, symbols = _sections(cubin)
    names = [name.replace(symbol, "KERNEL") for name in symbols]
    parts = {}
    for name, section in sections.items():
        if not name or UNREAD.match(name):
            continue
        content = section.content or b"%d" % section.size
        if name.startswith(".nv.info"):
            content = b"\n".join(sorted(_attributes(section.content, names)))
        elif name.startswith((".rela.", ".rel.")):
            content = b"\n".join(sorted(_relocations(section.content, names, has_addend=name.startswith(".rela."))))
        parts[name.replace(symbol, "KERNEL")] = content
    return parts


def _sections(elf: bytes) -> tuple[dict[str, Section], list[str]]:
    """Sections by name, and the names of symbols by number.

    Raises:
        ValueError: For anything but an ELF file of 64 bits.
    """
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("a compiled kernel is no ELF file")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, number, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, start + at * size) for at in range(number)]

    def text(table: int, at: int) -> str:
        begin = heads[table][4] + at
        return elf[begin : elf.index(b"\0", begin)].decode()

    sections, symbols = {}, []
    for head in heads:
        name, kind, offset, length = text(names_at, head[0]), head[1], head[4], head[5]
        sections[name] = Section(kind, b"" if kind == 8 else elf[offset : offset + length], length)
        if kind == 2:
            for at in range(offset, offset + length, 24):
                (place, kind_of, _, section) = struct.unpack_from("<IBBH", elf, at)
                is_section = kind_of & 15 == 3 and section < number
                symbols.append(text(names_at, heads[section][0]) if is_section else text(head[6], place))
    return sections, symbols


def _attributes(content: bytes, symbols: list[str]) -> Iterator[bytes]:
    """Attributes of kernels, with names in the place of numbers of symbols."""
    at = 0
    while at + 4 <= len(content):
        form, name, value = struct.unpack_from("<BBH", content, at)
        body = content[at + 4 : at + 4 + value] if form == SIZED else b""
        head = b"%d %d " % (form, name) + (b"" if form == SIZED else b"%d" % value)
        if name in WITH_SYMBOL and len(body) >= 4:
            (number,) = struct.unpack_from("<I", body)
            head += (symbols[number] if number < len(symbols) else str(number)).encode() + b" "
            body = body[4:]
        yield head + body.hex().encode()
        at += 4 + (value if form == SIZED else 0)


def _relocations(content: bytes, symbols: list[str], *, has_addend: bool) -> Iterator[bytes]:
    """Relocations, with names in the place of numbers of symbols."""
    size = 24 if has_addend else 16
    for at in range(0, len(content), size):
        offset, kind, number = struct.unpack_from("<QII", content, at)
        yield b"%d %d %s %s" % (offset, kind, symbols[number].encode(), content[at + 16 : at + size].hex().encode())


def _reads_data(cubin: bytes) -> bool:
    """Whether instructions read global variables, or the bank of constants with their addresses."""
    from constrint.tune.compile import nvidia_tool

    sections, _ = _sections(cubin)
    if any(name.startswith((".rela.text", ".rel.text")) and part.content for name, part in sections.items()):
        return True
    return "c[0x4]" in nvidia_tool("cuobjdump", cubin, "-sass")


# Assembly of AMD GPUs.


def _instructions(assembly: bytes, symbol: str) -> list[str]:
    """Lines without comments, places in sources and names of files."""
    text = re.sub(r"\.debug_\w+.*?(?=^\s*\.(?:text|section|amdgpu_metadata))", "", assembly.decode(), flags=re.S | re.M)
    text = re.sub(rf"(?<![\w.$]){re.escape(symbol)}(?![\w$])", "KERNEL", text)
    lines = (line.partition(";")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not re.match(r"\.(loc|file|ident|cfi|Ltmp\w+:|Lfunc)", line)]


def facts_that_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of facts of a launch that differ, with both values where they are short."""
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            values = f"{before}, now {after}"
            found.append(f"{name} ({values})" if len(values) <= 80 else name)
    return found
