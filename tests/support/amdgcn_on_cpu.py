"""Runs a block of an AMD kernel's assembly (gfx942, gfx950) on the CPU: the instructions that the CDNA GEMM uses.

Every wave is a program of its own; waves meet at `s_barrier`. Memory is as late as the machine allows: what a wave
reads from LDS reaches its registers, what it copies reaches LDS, and what it loads from memory reaches its registers
only when `s_waitcnt` asks for it. Until then these registers are marked, and an instruction that touches one is an
error. So a missing wait or barrier is a wrong result or an error here, whatever a device would make of it.

Each access to LDS is recorded with the addresses of all lanes, from which conflicts are counted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LANES = 64
U32 = np.uint32
_NUM = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
_RANGE = re.compile(r"([sva])\[(\d+):(\d+)\]|([sva])(\d+)")
_MODIFIER = re.compile(r"(offset|bitop3|op_sel|op_sel_hi|cbsz|blgp|dst_sel|dst_unused|src0_sel|src1_sel):(\S+)")


def _e4m3(bias: int) -> Any:
    """Values of all bytes: four bits of exponent, three of mantissa."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - bias - 3), mantissa * 2.0 ** (-bias - 2))
    return np.where(codes & 128, -magnitude, magnitude)


#: OCP's e4m3 and the one of gfx942, without their NaNs.
E4M3, E4M3_FNUZ = _e4m3(7), _e4m3(8)


@dataclass
class Statement:
    """One instruction: its name, operands and modifiers."""

    name: str
    operands: list[str]
    modifiers: dict[str, str]


@dataclass
class LdsAccess:
    """Addresses of all lanes in one instruction."""

    kind: str
    width_bits: int
    addresses: np.ndarray[Any, Any]
    copies: bool = False


def parse(text: str) -> tuple[list[Statement], dict[str, int]]:
    """The statements of the one kernel in a text of assembly, and its labels."""
    body, labels = [], {}
    for line in text[: text.index(".section\t.rodata") if ".section\t.rodata" in text else len(text)].splitlines():
        code = line.split(";")[0].strip()
        if code.endswith(":"):
            labels[code[:-1]] = len(body)
        elif code and not code.startswith("."):
            name, _, rest = code.partition(" ")
            modifiers = dict(_MODIFIER.findall(rest))
            rest = _MODIFIER.sub("", rest)
            operands = [part.strip() for part in re.split(r",(?![^\[]*\])", rest) if part.strip()]
            if name.startswith("buffer_load"):
                last = operands[-1].split()
                operands[-1], modifiers["lds"] = last[0], str("lds" in last)
            body.append(Statement(name, operands, modifiers))
    return body, labels


class Wave:
    """Registers and program counter of one wave."""

    def __init__(self, block: Block, index: int) -> None:
        self.block, self.index, self.pc, self.scc, self.m0 = block, index, 0, 0, 0
        self.s = np.zeros(128, dtype=U32)
        self.v = np.zeros((256, LANES), dtype=U32)
        self.a = np.zeros((256, LANES), dtype=U32)
        self.exec, self.vcc = (1 << LANES) - 1, 0
        self.lds_queue: list[Callable[[], None]] = []
        self.memory_queue: list[Callable[[], None]] = []
        self.late: set[tuple[str, int]] = set()

    # Operands.

    def check(self, kind: str, first: int, count: int) -> None:
        """Refuse registers whose data have not been waited for."""
        for i in range(first, first + count):
            if (kind, i) in self.late:
                statement = self.block.body[self.pc]
                raise AssertionError(f"wave {self.index}: {statement} uses {kind}{i}, which was not waited for")

    def span(self, text: str) -> tuple[str, int, int]:
        """File, first register and count of an operand."""
        hit = _RANGE.fullmatch(text)
        assert hit is not None, text
        if hit[1]:
            return hit[1], int(hit[2]), int(hit[3]) - int(hit[2]) + 1
        return hit[4], int(hit[5]), 1

    def scalar(self, text: str, bits: int = 32) -> int:
        """An unsigned scalar operand."""
        mask = (1 << bits) - 1
        if text in ("vcc", "exec"):
            return int(getattr(self, text)) & mask
        if text == "m0":
            return self.m0
        if _NUM.fullmatch(text):
            return int(text, 0) & mask
        kind, first, count = self.span(text)
        assert kind == "s", text
        self.check("s", first, bits // 32)
        assert count == bits // 32 or bits == 32, text
        return sum(int(self.s[first + i]) << 32 * i for i in range(bits // 32))

    def set_scalar(self, text: str, value: int, bits: int = 32) -> None:
        """Write a scalar."""
        if text == "m0":
            self.m0 = value & 0xFFFFFFFF
        elif text in ("vcc", "exec"):
            setattr(self, text, value & ((1 << 64) - 1))
        else:
            _, first, _ = self.span(text)
            for i in range(bits // 32):
                self.s[first + i] = value >> 32 * i & 0xFFFFFFFF

    def vector(self, text: str) -> np.ndarray[Any, Any]:
        """A 32-bit operand of a vector instruction, in all lanes."""
        if text.startswith(("v", "a")) and text != "vcc":
            kind, first, _ = self.span(text)
            self.check(kind, first, 1)
            return (self.v if kind == "v" else self.a)[first].copy()
        if re.fullmatch(r"-?\d+\.\d+", text):
            return np.full(LANES, struct.unpack("<I", struct.pack("<f", float(text)))[0], dtype=U32)
        return np.full(LANES, self.scalar(text), dtype=U32)

    def vector64(self, text: str) -> np.ndarray[Any, Any]:
        """A 64-bit operand."""
        if text.startswith("v["):
            _, first, _ = self.span(text)
            self.check("v", first, 2)
            return self.v[first].astype(np.uint64) | self.v[first + 1].astype(np.uint64) << np.uint64(32)
        return np.full(LANES, self.scalar(text, 64), dtype=np.uint64)

    @property
    def active(self) -> np.ndarray[Any, Any]:
        """Lanes in which vector instructions act."""
        return np.array([self.exec >> lane & 1 for lane in range(LANES)], dtype=bool)

    def set_vector(self, text: str, value: Any) -> None:
        """Write a vector register in the active lanes."""
        kind, first, _ = self.span(text)
        self.check(kind, first, 1)
        file = self.v if kind == "v" else self.a
        file[first][self.active] = np.asarray(value).astype(U32)[self.active]

    def set_vector64(self, text: str, value: np.ndarray[Any, Any]) -> None:
        """Write two registers."""
        _, first, _ = self.span(text)
        for i in range(2):
            self.v[first + i][self.active] = (value >> np.uint64(32 * i)).astype(U32)[self.active]

    def block_of(self, text: str) -> np.ndarray[Any, Any]:
        """Registers of an operand as (count, lanes)."""
        if _NUM.fullmatch(text):
            return np.zeros((4, LANES), dtype=U32)
        kind, first, count = self.span(text)
        self.check(kind, first, count)
        return (self.v if kind == "v" else self.a)[first : first + count].copy()

    def arrive(self, queue: list[Callable[[], None]], text: str, values: np.ndarray[Any, Any]) -> None:
        """Put data into registers later, and mark these until then."""
        kind, first, count = self.span(text)
        self.check(kind, first, count)
        file, active = self.v if kind == "v" else self.a, self.active
        names = {(kind, first + i) for i in range(count)}
        self.late |= names

        def land() -> None:
            file[first : first + count, active] = values[:, active]
            self.late.difference_update(names)

        queue.append(land)

    def drain(self, queue: list[Callable[[], None]], left: int) -> None:
        """Let the oldest data arrive until so many are left."""
        while len(queue) > left:
            queue.pop(0)()


@dataclass
class Block:
    """A block of a kernel.

    Args:
        text: Its assembly.
        memory: Global memory, which starts at address `base`.
        arguments: The kernel's arguments as bytes.
        num_waves: Waves.
        block: Its index in the grid.
        lds_bytes: Bytes of LDS.
        base: Address of the memory's first byte.
        accesses: Every access to LDS, in the order of the waves that made them.
        seed: Of the order in which waves run.
        copies_early: Whether copies reach LDS as they are issued, before what others still read; else when waited for.
    """

    text: str
    memory: np.ndarray[Any, Any]
    arguments: bytes
    num_waves: int
    block: int
    lds_bytes: int
    base: int = 1 << 20
    accesses: list[LdsAccess] = field(default_factory=list)
    seed: int = 0
    copies_early: bool = False

    def __post_init__(self) -> None:
        self.body, self.labels = parse(self.text)
        self.lds = np.full(self.lds_bytes, 0xFF, dtype=np.uint8)
        self.kernarg = bytes(self.arguments)

    def run(self) -> None:
        """Run all waves to their ends, in a random order between barriers."""
        waves = [Wave(self, index) for index in range(self.num_waves)]
        counts = self._scalar_places()
        for wave in waves:
            wave.v[0] = np.arange(LANES, dtype=U32) + LANES * wave.index
            wave.set_scalar(f"s[{counts[0]}:{counts[0] + 1}]", 0, 64)
            wave.s[counts[1]] = self.block
            wave.s[counts[1] + 1] = 0
        programs = {wave.index: self._program(wave) for wave in waves}
        rng = np.random.default_rng(self.seed)
        waiting: set[int] = set()
        while programs:
            ready = [index for index in programs if index not in waiting]
            if not ready:
                waiting.clear()
                continue
            index = int(rng.choice(ready))
            try:
                next(programs[index])
                waiting.add(index)
            except StopIteration:
                del programs[index]

    def _scalar_places(self) -> tuple[int, int]:
        """First scalar registers of the arguments' address and of the block's index."""
        preload = re.search(r"\.amdhsa_user_sgpr_count (\d+)", self.text)
        assert preload is not None
        dispatch = re.search(r"\.amdhsa_user_sgpr_dispatch_ptr 1", self.text)
        first = re.search(r"s_load_dword\w* s\S+ s\[(\d+):\d+\]", self.text)
        assert first is not None, dispatch
        return int(first[1]), int(preload[1])

    def _program(self, wave: Wave) -> Iterator[None]:
        while True:
            statement = self.body[wave.pc]
            if statement.name == "s_endpgm":
                return
            if statement.name == "s_barrier":
                yield
            target = execute(self, wave, statement)
            wave.pc = self.labels[target] if target is not None else wave.pc + 1

    def load(self, addresses: np.ndarray[Any, Any], num_bytes: int) -> np.ndarray[Any, Any]:
        """Words of global memory, (num_bytes / 4, lanes)."""
        places = addresses.astype(np.int64)[None, :] - self.base + np.arange(num_bytes)[:, None]
        assert 0 <= places.min() <= places.max() < self.memory.size, "a load outside of memory"
        return np.ascontiguousarray(self.memory[places].T).view(U32).T.copy()

    def store(self, addresses: np.ndarray[Any, Any], words: np.ndarray[Any, Any], num_bytes: int) -> None:
        """Store the lowest bytes of words, (count, lanes)."""
        data = np.ascontiguousarray(words.T).view(np.uint8).reshape(len(addresses), -1)[:, :num_bytes]
        places = addresses.astype(np.int64)[:, None] - self.base + np.arange(num_bytes)[None, :]
        assert 0 <= places.min() <= places.max() < self.memory.size, "a store outside of memory"
        self.memory[places] = data


def _signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def _compare(name: str) -> Callable[[Any, Any], Any]:
    return {
        "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "ne": lambda a, b: a != b, "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    }[name]  # fmt: skip


def execute(block: Block, wave: Wave, st: Statement) -> str | None:
    """Run one statement; the label to go on at, or None for the next one."""
    name, ops = st.name, st.operands
    if name.startswith("s_"):
        return _scalar(block, wave, st)
    if name.startswith(("ds_", "buffer_", "global_")):
        _memory(block, wave, name, ops, st.modifiers)
    elif name.startswith("v_mfma"):
        _mfma(wave, name, ops)
    else:
        _vector(wave, name, ops, st.modifiers)
    return None


def _scalar(block: Block, wave: Wave, st: Statement) -> str | None:
    name, ops = st.name, st.operands
    if name in ("s_nop", "s_barrier", "s_setprio"):
        return None
    if name == "s_waitcnt":
        text = " ".join(ops)
        for counter, queue in (("lgkmcnt", wave.lds_queue), ("vmcnt", wave.memory_queue)):
            if hit := re.search(rf"{counter}\((\d+)\)", text):
                wave.drain(queue, int(hit[1]))
        return None
    if name == "s_branch":
        return ops[0]
    if name.startswith("s_cbranch"):
        taken = {"scc1": wave.scc == 1, "scc0": wave.scc == 0, "execz": wave.exec == 0, "execnz": wave.exec != 0,
                 "vccz": wave.vcc == 0, "vccnz": wave.vcc != 0}[name.split("_")[-1]]  # fmt: skip
        return ops[0] if taken else None
    if name.startswith("s_load_dword"):
        count = int(name.removeprefix("s_load_dword").removeprefix("x") or 1)
        start = int(ops[2], 0)
        data = block.kernarg[start : start + 4 * count].ljust(4 * count, b"\0")
        _, first, _ = wave.span(ops[0])
        wave.s[first : first + count] = np.frombuffer(data, dtype=U32)
        return None
    if name.startswith("s_cmp"):
        kind = name.removeprefix("s_cmpk_").removeprefix("s_cmp_")
        operator, form = kind.split("_")
        a, b = wave.scalar(ops[0]), wave.scalar(ops[1])
        if form == "i32":
            a, b = _signed(a), _signed(b)
        wave.scc = int(_compare(operator)(a, b))
        return None
    _arithmetic(wave, name, ops)
    return None


def _arithmetic(wave: Wave, name: str, ops: list[str]) -> None:
    bits = 64 if name.endswith("64") else 32
    if name == "s_and_saveexec_b64":
        saved = wave.exec
        wave.exec = wave.scalar(ops[1], 64) & saved
        wave.set_scalar(ops[0], saved, 64)
        wave.scc = int(wave.exec != 0)
        return
    core = name.removeprefix("s_")
    short = core in ("addk_i32", "movk_i32", "mulk_i32")
    sources = ops[1:] if not (short and core != "movk_i32") else [ops[0], ops[1]]
    values = [wave.scalar(op, 32 if core.startswith(("lshl_b64", "lshr_b64", "ashr_i64")) and i else bits)
              for i, op in enumerate(sources)]  # fmt: skip
    a, b = values[0], values[1] if len(values) > 1 else 0
    mask = (1 << bits) - 1
    full: int
    scc: int | None = None
    if core in ("mov_b32", "mov_b64"):
        full = a
    elif core == "movk_i32":
        full = _signed(a & 0xFFFF, 16)
    elif core in ("add_i32", "addk_i32", "add_u32"):
        full = a + b
        scc = int(full > mask) if core == "add_u32" else 0
    elif core == "addc_u32":
        full = a + b + wave.scc
        scc = int(full > mask)
    elif core in ("sub_i32", "sub_u32"):
        full, scc = a - b, int(b > a) if core == "sub_u32" else 0
    elif core == "subb_u32":
        full = a - b - wave.scc
        scc = int(full < 0)
    elif core in ("mul_i32", "mulk_i32"):
        full = a * b
    elif core == "mul_hi_u32":
        full = a * b >> 32
    elif core == "mul_hi_i32":
        full = _signed(a) * _signed(b) >> 32
    elif core.startswith(("and_b", "or_b", "xor_b", "andn2_b")):
        full = {"and": a & b, "or": a | b, "xor": a ^ b, "andn2": a & ~b & mask}[core.split("_")[0]]
        scc = int(full & mask != 0)
    elif core.startswith("lshl"):
        full = a << (b & bits - 1)
        scc = int(full & mask != 0)
    elif core.startswith("lshr"):
        full = a >> (b & bits - 1)
        scc = int(full & mask != 0)
    elif core.startswith("ashr"):
        full = _signed(a, bits) >> (b & bits - 1)
        scc = int(full & mask != 0)
    elif core == "bfe_u32":
        full = a >> (b & 31) & (1 << (b >> 16 & 127)) - 1
        scc = int(full != 0)
    elif core in ("sext_i32_i16", "sext_i32_i8"):
        width = int(core.rpartition("i")[2])
        full = _signed(a & (1 << width) - 1, width)
    elif core == "bfe_i32":
        width = b >> 16 & 127
        full = _signed(a >> (b & 31) & (1 << width) - 1, width) if width else 0
        scc = int(full != 0)
    elif core in ("min_i32", "max_i32", "min_u32", "max_u32"):
        sign = _signed if core.endswith("i32") else int
        first = sign(a) <= sign(b) if core.startswith("min") else sign(a) >= sign(b)
        full, scc = (a if first else b), int(first)
    elif core == "abs_i32":
        full = abs(_signed(a))
    elif core == "absdiff_i32":
        full = abs(_signed(a) - _signed(b))
    elif core == "bitset1_b32":
        full = wave.scalar(ops[0]) | 1 << (a & 31)
    elif core.startswith("cselect"):
        full = a if wave.scc else b
    else:
        raise NotImplementedError(name)
    wave.set_scalar(ops[0], full & mask, bits)
    if scc is not None:
        wave.scc = scc


def _float(words: Any) -> Any:
    return np.asarray(words, dtype=U32).view(np.float32)


def _word(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32).view(U32)


def _mask(values: Any) -> int:
    return sum(1 << lane for lane in range(LANES) if values[lane])


def to_bf16(values: Any) -> Any:
    """Round fp32 to the nearest bf16, ties to even; NaN stays NaN."""
    words = _word(values)
    return ((words + np.uint32(0x7FFF) + (words >> U32(16) & U32(1))) >> U32(16)).astype(U32)


def _vector(wave: Wave, name: str, ops: list[str], modifiers: dict[str, str]) -> None:
    core = re.sub(r"_(e32|e64|sdwa)$", "", name.removeprefix("v_"))
    if core.startswith("cmp_"):
        _, operator, form = core.split("_")
        a, b = wave.vector(ops[1]), wave.vector(ops[2])
        if form == "i32":
            result = _compare(operator)(a.view(np.int32), b.view(np.int32))
        elif form == "f32":
            fa, fb = _float(a), _float(b)
            result = ~(np.isnan(fa) | np.isnan(fb)) if operator == "o" else _compare(operator)(fa, fb)
        else:
            result = _compare(operator)(a, b)
        wave.set_scalar(ops[0], _mask(result & wave.active), 64)
        return
    if core == "readfirstlane_b32":
        lane = (wave.exec & -wave.exec).bit_length() - 1 if wave.exec else 0
        wave.set_scalar(ops[0], int(wave.vector(ops[1])[lane]))
        return
    if core == "lshl_add_u64":
        shift = np.uint64(wave.scalar(ops[2]))
        wave.set_vector64(ops[0], (wave.vector64(ops[1]) << shift) + wave.vector64(ops[3]))
        return
    if core in ("mad_i64_i32", "mad_u64_u32"):
        a, b = (wave.vector(op) for op in ops[2:4])
        if core == "mad_i64_i32":
            product = (a.view(np.int32).astype(np.int64) * b.view(np.int32).astype(np.int64)).view(np.uint64)
        else:
            product = a.astype(np.uint64) * b.astype(np.uint64)
        wave.set_vector64(ops[0], product + wave.vector64(ops[4]))
        return
    if core in ("mov_b64", "lshlrev_b64"):
        source = wave.vector64(ops[-1])
        wave.set_vector64(ops[0], source if core == "mov_b64" else source << np.uint64(wave.scalar(ops[1])))
        return
    if core == "cndmask_b32":
        chosen = wave.scalar(ops[3], 64)
        lanes = np.array([chosen >> lane & 1 for lane in range(LANES)], dtype=bool)
        first, second = wave.vector(ops[1]), wave.vector(ops[2])
        for source, sel in (("src0_sel", "first"), ("src1_sel", "second")):
            if modifiers.get(source) == "WORD_1":
                if sel == "first":
                    first = first >> U32(16)
                else:
                    second = second >> U32(16)
        wave.set_vector(ops[0], np.where(lanes, second, first))
        return
    wave.set_vector(ops[0], _lanes(core, [wave.vector(op) for op in ops[1:]], modifiers))


def _lanes(core: str, x: list[Any], modifiers: dict[str, str]) -> Any:
    """Results of vector instructions that treat every lane alike."""
    wide = [each.astype(np.uint64) for each in x]
    low = np.uint64(0xFFFFFFFF)
    if core in ("mov_b32", "accvgpr_read_b32", "accvgpr_write_b32", "accvgpr_mov_b32"):
        return x[0]
    if core.startswith(("add_u32", "add3_u32")):
        return sum(wide) & low
    if core.startswith("sub_u32"):
        return x[0] - x[1]
    if core.startswith("subrev_u32"):
        return x[1] - x[0]
    if core == "add_lshl_u32":
        return ((wide[0] + wide[1]) << (wide[2] & np.uint64(31))) & low
    if core == "lshl_add_u32":
        return ((wide[0] << (wide[1] & np.uint64(31))) + wide[2]) & low
    if core == "lshl_or_b32":
        return ((wide[0] << (wide[1] & np.uint64(31))) | wide[2]) & low
    if core == "xad_u32":
        return ((wide[0] ^ wide[1]) + wide[2]) & low
    if core == "mul_lo_u32":
        return (wide[0] * wide[1]) & low
    if core == "mul_hi_u32":
        return (wide[0] * wide[1]) >> np.uint64(32)
    if core in ("and_b32", "or_b32", "xor_b32"):
        return {"and": x[0] & x[1], "or": x[0] | x[1], "xor": x[0] ^ x[1]}[core.split("_")[0]]
    if core == "or3_b32":
        return x[0] | x[1] | x[2]
    if core == "and_or_b32":
        return (x[0] & x[1]) | x[2]
    if core == "bitop3_b32":
        table = int(modifiers["bitop3"], 0)
        result = np.zeros_like(x[0])
        for i in range(8):
            if table >> i & 1:
                part = (x[0] if i & 4 else ~x[0]) & (x[1] if i & 2 else ~x[1]) & (x[2] if i & 1 else ~x[2])
                result |= part
        return result
    if core == "lshlrev_b32":
        return x[1] << (x[0] & U32(31))
    if core == "lshrrev_b32":
        return x[1] >> (x[0] & U32(31))
    if core == "ashrrev_i32":
        return (x[1].view(np.int32) >> (x[0] & U32(31)).astype(np.int32)).view(U32)
    if core in ("bfe_u32", "bfe_i32"):
        field_bits = x[2] & U32(31)
        part = (x[0] >> (x[1] & U32(31))) & ((U32(1) << field_bits) - U32(1))
        if core == "bfe_u32":
            return part
        left = U32(32) - field_bits
        return ((part << left).view(np.int32) >> left.astype(np.int32)).view(U32)
    if core == "cvt_f32_u32":
        return _word(x[0].astype(np.float32))
    if core == "cvt_u32_f32":
        return np.clip(_float(x[0]), 0, 4294967040).astype(np.uint64).astype(U32)
    if core == "rcp_f32":
        return _word(np.float32(1) / _float(x[0]))
    if core == "mul_f32":
        return _word(_float(x[0]) * _float(x[1]))
    if core == "cvt_pk_bf16_f32":
        return to_bf16(_float(x[0])) | to_bf16(_float(x[1])) << U32(16)
    if core in ("cvt_f16_f32", "cvt_pk_f16_f32", "cvt_pkrtz_f16_f32"):
        halves = [_float(each).astype(np.float16).view(np.uint16).astype(U32) for each in x]
        return halves[0] if len(halves) == 1 else halves[0] | halves[1] << U32(16)
    if core == "pack_b32_f16":
        return (x[0] & U32(0xFFFF)) | x[1] << U32(16)
    if core == "perm_b32":
        both = wide[0] << np.uint64(32) | wide[1]
        result = np.zeros(LANES, dtype=np.uint64)
        for i in range(4):
            choice = (wide[2] >> np.uint64(8 * i)) & np.uint64(0xFF)
            byte = np.where(choice < 8, (both >> (choice % np.uint64(8) * np.uint64(8))) & np.uint64(0xFF), 0)
            result |= byte.astype(np.uint64) << np.uint64(8 * i)
        return result
    raise NotImplementedError(f"v_{core}")


def _memory(block: Block, wave: Wave, name: str, ops: list[str], modifiers: dict[str, str]) -> None:
    offset = int(modifiers.get("offset", "0"), 0)
    if name in ("ds_read_b128", "ds_read_b64", "ds_read_b64_tr_b16"):
        width = 16 if name == "ds_read_b128" else 8
        addresses = wave.vector(ops[1]).astype(np.int64) + offset
        block.accesses.append(LdsAccess("read", 8 * width, addresses))
        places = addresses[:, None] + np.arange(width)[None, :]
        # The read happens when it is waited for: a copy or store that does not wait for it shows.
        values = np.zeros((width // 4, LANES), dtype=U32)
        kind, first, count = wave.span(ops[0])
        wave.check(kind, first, count)
        names = {(kind, first + i) for i in range(count)}
        wave.late |= names
        file = wave.v if kind == "v" else wave.a

        def land() -> None:
            data = np.ascontiguousarray(block.lds[places])
            values[:] = (_transposed(data) if name.endswith("tr_b16") else data).view(U32).T
            file[first : first + count] = values
            wave.late.difference_update(names)

        wave.lds_queue.append(land)
    elif name == "ds_write_b128":
        addresses = wave.vector(ops[0]).astype(np.int64) + offset
        data = np.ascontiguousarray(wave.block_of(ops[1]).T).view(np.uint8)
        block.accesses.append(LdsAccess("write", 128, addresses))

        def write() -> None:
            block.lds[addresses[:, None] + np.arange(16)[None, :]] = data

        wave.lds_queue.append(write)
    elif name == "buffer_load_dwordx4":
        _buffer_load(block, wave, ops, modifiers, offset)
    elif name.startswith("global_store"):
        _global_store(block, wave, name, ops, offset)
    else:
        raise NotImplementedError(name)


def _transposed(data: Any) -> Any:
    """`ds_read_b64_tr_b16`: sixteen lanes read four rows of 16 elements; lane l gets column l % 16 of them."""
    rows = data.view(np.uint16).reshape(LANES // 16, 4, 16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(LANES, 4).view(np.uint8)


def _buffer_load(block: Block, wave: Wave, ops: list[str], modifiers: dict[str, str], offset: int) -> None:
    is_lds = modifiers["lds"] == "True"
    places, resource, _ = ops if is_lds else ops[1:]
    _, first, _ = wave.span(resource)
    base = int(wave.s[first]) | (int(wave.s[first + 1]) & 0xFFFF) << 32
    addresses = wave.vector(places).astype(np.int64) + base + offset
    words = block.load(addresses, 16)
    if not is_lds:
        wave.arrive(wave.memory_queue, ops[0], words)
        return
    start = wave.m0 + offset
    lanes = start + 16 * np.arange(LANES, dtype=np.int64)
    block.accesses.append(LdsAccess("write", 128, lanes, copies=True))
    data = np.ascontiguousarray(words.T).view(np.uint8)

    def land() -> None:
        block.lds[lanes[:, None] + np.arange(16)[None, :]] = data

    if block.copies_early:
        land()
    wave.memory_queue.append((lambda: None) if block.copies_early else land)


def _global_store(block: Block, wave: Wave, name: str, ops: list[str], offset: int) -> None:
    active = wave.active
    addresses = wave.vector64(ops[0]).astype(np.int64) + offset
    words = wave.block_of(ops[1])
    if name.endswith("short_d16_hi"):
        words = words >> U32(16)
    widths = {"short": 2, "hi": 2, "dword": 4, "dwordx2": 8, "dwordx4": 16}
    if active.any():
        block.store(addresses[active], words[:, active], widths[name.split("_")[-1]])


def _mfma(wave: Wave, name: str, ops: list[str]) -> None:
    """D = A @ B + C of 16 rows and columns, summed in fp64 and rounded to fp32."""
    hit = re.match(r"v_mfma(?:_scale)?_f32_16x16x(\d+)_(bf16|f16|fp8_fp8|f8f6f4)", name)
    if hit is None:
        raise NotImplementedError(name)
    a, b, c = (wave.block_of(op) for op in ops[1:4])
    left, right = (_operand(words, hit[2], int(hit[1])) for words in (a, b))
    product = left @ right.T
    lane = np.arange(LANES)
    rows = lane // 16 * 4 + np.arange(4)[:, None]
    sums = product[rows, lane % 16] + _float(c).astype(np.float64)
    kind, first, count = wave.span(ops[0])
    wave.check(kind, first, count)
    (wave.v if kind == "v" else wave.a)[first : first + count] = _word(sums.astype(np.float32))


def _operand(words: Any, dtype: str, depth: int) -> Any:
    """An operand as (16, depth): lane l has row l % 16 and the (l // 16)-th part of K."""
    raw = np.ascontiguousarray(words.T)
    if dtype in ("f8f6f4", "fp8_fp8"):
        table = E4M3_FNUZ if dtype == "fp8_fp8" else E4M3
        return table[raw.view(np.uint8)].reshape(4, 16, depth // 4).transpose(1, 0, 2).reshape(16, depth)
    halves = raw.view(np.uint16).astype(U32)
    values = _float(halves << U32(16)) if dtype == "bf16" else halves.astype(np.uint16).view(np.float16)
    return values.astype(np.float64).reshape(4, 16, depth // 4).transpose(1, 0, 2).reshape(16, depth)
