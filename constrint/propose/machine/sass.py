"""Reads NVIDIA's machine code: sections and symbols of the binary, and every instruction by `nvdisasm`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from constrint.propose.machine import words
from constrint.propose.machine.ptx import PtxFindings
from constrint.propose.machine.ptx_lists import TABLES
from constrint.tune.compile import nvidia_tool

_INSTRUCTIONS = words(
    "FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FHADD FHFMA FMNMX FMNMX3 FMUL FMUL2 FMUL32I FSEL FSET FSETP FSWZADD "
    "MUFU HADD2 HADD2_32I HFMA2 HFMA2_32I HMMA HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2 VHMNMX DADD DFMA DMMA DMUL DSETP "
    "BMMA BMSK BREV CLMAD FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMMA IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP "
    "LEA LOP LOP3 LOP32I OMMA POPC QADD4 QFMA4 QMMA QMUL4 SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX "
    "VIMNMX3 F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP MOV MOV32I MOVM PRMT SEL SGXT SHFL PLOP3 PSETP P2R R2P "
    "ARRIVES ATOM ATOMG ATOMS CCTL DEPBAR ERRBAR FENCE LD LDC LDG LDGDEPBAR LDGSTS LDL LDS LDSM LDTM LDT MATCH MEMBAR "
    "QSPC RED REDAS REDG REDUX ST STAS STG STL STS STSM STT STTM SYNCS CGAERRBAR "
    "BGMMA HGMMA IGMMA QGMMA WARPGROUP WARPGROUPSET USETMAXREG ELECT ENDCOLLECTIVE CREDUX CS2UR "
    "UBLKCP UBLKRED UCGABAR_ARV UCGABAR_WAIT UTMALDG UTMAREDG UTMASTG UTMACMDFLUSH "
    "UTCATOMSWS UTCBAR UTCCP UTCHMMA UTCIMMA UTCOMMA UTCQMMA UTCSHIFT UVIADD UVIMNMX UMEMSETS UREDGR USTGR "
    "LDCU R2UR S2UR UBMSK UBREV UCLEA UF2F UF2FP UF2I UF2IP UFADD UFFMA UFLO UFMNMX UFMUL UFRND UFSEL UFSET UFSETP "
    "UI2F UI2FP UI2I UI2IP UIABS UIADD3 UIMAD UIMNMX UISETP ULDC ULEA ULOP ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC "
    "UPRMT UPSETP UR2UP USEL USGXT USHF USHL USHR VOTEU "
    "BMOV BRA BREAK BRX BRXU BSSY BSYNC CALL EXIT RET RPCMOV WARPSYNC YIELD B2R BAR CS2R NOP R2B S2R VOTE"
)
#: What ptxas adds where a kernel takes tensor memory: it waits for others, and traps where it is given back twice.
_FOR_TENSOR_MEMORY = words("NANOSLEEP BPT UVIRTCOUNT")
#: Of what controls caches, only what fences do.
_CACHE_CONTROL = words("CCTL.IVALL")
#: What a thread may ask about its place.
_REGISTERS = re.compile(
    r"SRZ|SR_(?:(?:TID|CTAID|NTID|NCTAID)(?:\.[XYZ])?|LANEID|(?:EQ|LT|LE|GT|GE)MASK|SMEMSZ|SWINHI|SWINLO|"
    r"CgaCtaId|CgaSize)"
)
_SECTION = re.compile(
    r"\.text\..+|\.nv\.(?:constant[02]|shared|local|constant\.\w+)\..+|\.nv\.(?:constant[34]|global(?:\.init)?)(?:\..+)?"
    r"|\.nv\.merc\..+"
)
_LASTING = re.compile(r"\.nv\.(?:constant3|global)\b.*")
_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*)")
_INSTRUCTION = re.compile(r"(?:@!?U?P(?:\d|T)\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w]+)*)(?![\w.])(.*)")
#: Targets that Triton compiles for and its `nvdisasm` does not read; their PTX and symbols are read alone.
NOT_DISASSEMBLED = words("sm_70 sm_72")
_ALLOCATED, _OBJECT, _SYMBOLS, _INSTRUCTION_BYTES = 2, 1, 2, 16


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int


def sass_problems(cubin: bytes, ptx: PtxFindings) -> Iterator[str]:
    """The faults of a binary.

    Args:
        cubin: The binary.
        ptx: What its PTX says.
    """
    try:
        sections = list(_sections(cubin))
        symbols = list(_symbols(cubin, sections))
    except (struct.error, ValueError, IndexError, OverflowError):
        yield "a binary that cannot be read"
        return
    yield from _memory_problems(sections, symbols, ptx.dead)
    if ptx.target in NOT_DISASSEMBLED:
        return
    text = nvidia_tool("nvdisasm", cubin, "-c", "-ndf")
    lines = [found[1] for found in map(_LINE.match, text.splitlines()) if found]
    expected = sum(one.size for one in sections if one.name.startswith(".text.")) // _INSTRUCTION_BYTES
    if len(lines) != expected or not expected:
        yield f"{expected} instructions of which {len(lines)} can be read"
    known = _INSTRUCTIONS | _FOR_TENSOR_MEMORY if ptx.has_tensor_memory else _INSTRUCTIONS
    for line in lines:
        yield from _instruction_problems(line, known)


def _memory_problems(sections: list[_Section], symbols: list[_Symbol], dead: frozenset[str]) -> Iterator[str]:
    for place, one in enumerate(sections):
        if one.flags & _ALLOCATED and not _SECTION.fullmatch(one.name):
            yield f"the section `{one.name}`, which no kernel needs"
        if _LASTING.fullmatch(one.name):
            objects = {symbol.name for symbol in symbols if symbol.section == place and symbol.kind == _OBJECT}
            if not objects or not objects <= dead | TABLES:
                name = min(objects - dead - TABLES, default=one.name)
                yield f"a variable in global memory, which would outlive a call (`{name}`)"
    for symbol in symbols:
        if not symbol.section and symbol.name and not symbol.name.startswith(".nv.reservedSmem"):
            yield f"a call of what it does not define (`{symbol.name}`)"


def _instruction_problems(line: str, known: frozenset[str]) -> Iterator[str]:
    found = _INSTRUCTION.match(line)
    if found is None or found[1] not in known:
        yield f"the machine instruction `{found[1] if found else line[:20]}`, which is none that a kernel needs"
        return
    if found[1] == "CCTL" and f"CCTL{found[2]}" not in _CACHE_CONTROL:
        yield f"the machine instruction `CCTL{found[2]}`, which controls a cache"
    for register in re.findall(r"\bSR\w*(?:\.\w+)?", found[3]):
        if not _REGISTERS.fullmatch(register):
            yield f"the register `{register}`: a clock, a counter, or what else no kernel needs"


def _sections(cubin: bytes) -> Iterator[_Section]:
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF of 64 bits")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<3H", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQI", cubin, start + place * size) for place in range(count)]
    for name, kind, flags, _, offset, length, link in heads:
        yield _Section(_text(cubin, heads[names][4] + name), kind, flags, offset, length, link)


def _symbols(cubin: bytes, sections: list[_Section]) -> Iterator[_Symbol]:
    for table in sections:
        if table.kind == _SYMBOLS:
            for at in range(table.offset, table.offset + table.size, 24):
                name, kind, _, section = struct.unpack_from("<IBBH", cubin, at)
                yield _Symbol(_text(cubin, sections[table.link].offset + name), kind & 15, section)


def _text(cubin: bytes, at: int) -> str:
    return cubin[at : cubin.index(b"\0", at)].decode("ascii", "replace")
