"""Accesses of shared memory in a compiled CUDA kernel: the addresses of all lanes, from the arithmetic in its PTX.

The first block is walked once in the order of its text, all threads at a time: a register is a number for each thread,
or unknown where it comes from memory. A branch whose condition is known masks threads until its label; a loop is walked
once, so that an access in it has the addresses of its first iteration. Addresses that depend on data are unknown, and
are said to be. Matrix units read operands in place, by the modes of the TMA unit, and remote or bulk copies have no
lanes of their own: neither is looked at.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.shared_accesses import SharedAccess
from constrint.hwmodels.banks import Kind

LANES = 32
#: Where dynamic shared memory begins: as the largest alignment that a kernel may ask for.
ALIGNMENT = 1024
_SHARED = re.compile(r"^\s*(?:\.\w+ )*\.shared (?:\.align (\d+) )?\.(?:b|u|s|f)(\d+) ([\w$]+)(?:\[(\d*)\])?;")
_STATEMENT = re.compile(r"(?:@(!?)(%?\w+)\s+)?\b(?<![.%])([a-z][\w.:]*)\s*([^;]*);")
_PIECE = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
_MATRIX = re.compile(r"(ld|st)matrix\..*\.x([124])\b")
_TYPE_BITS = re.compile(r"\.[busf](8|16|32|64)\b(?!.*\.[busf](?:8|16|32|64)\b)")

Numbers = NDArray[np.int64]
Known = NDArray[np.bool_]


@dataclass
class _Value:
    """A number of every thread, and whether it is known."""

    numbers: Numbers
    known: Known


@dataclass(frozen=True)
class Block:
    """The block that is walked.

    Args:
        threads: Threads along x, y and z.
        grid: Blocks along x, y and z.
        arguments: The kernel's arguments; those that are whole numbers are known.
    """

    threads: tuple[int, ...]
    grid: tuple[int, ...]
    arguments: Sequence[Any] = ()


def ptx_accesses(ptx: str, block: Block) -> list[SharedAccess]:
    """Every different access of shared memory in a kernel's PTX, in the order of its text."""
    return list(_Walk(ptx.splitlines(), block).accesses())


@dataclass
class _Walk:
    """One walk through a kernel."""

    lines: Sequence[str]
    block: Block
    registers: dict[str, _Value] = field(default_factory=dict)
    waiting: dict[str, Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = (*self.block.threads, 1, 1)[:3]
        count = -(-int(np.prod(sizes)) // LANES) * LANES
        self.thread = np.arange(count, dtype=np.int64)
        self.active = self.thread < int(np.prod(sizes))
        self.everyone = self.active
        x, y, z = self.thread % sizes[0], self.thread // sizes[0] % sizes[1], self.thread // (sizes[0] * sizes[1])
        self.special = {"%tid.x": x, "%tid.y": y, "%tid.z": z, "%laneid": self.thread % LANES}
        self.special["%warpid"] = self.thread // LANES
        grid = (*self.block.grid, 1, 1)[:3]
        for axis, threads, blocks in zip("xyz", sizes, grid, strict=True):
            self.special |= {f"%ntid.{axis}": self._all(threads), f"%nctaid.{axis}": self._all(blocks)}
            self.special[f"%ctaid.{axis}"] = self._all(0)
        self.symbols = dict(_symbols(self.lines))
        self.loops = list(_loops(self.lines))

    def _all(self, number: int) -> Numbers:
        return np.full_like(self.thread, number)

    def accesses(self) -> Iterator[SharedAccess]:
        """Walk, and yield what moves data to or from shared memory."""
        files: dict[str, str] = {hit[1]: Path(hit[2]).name for line in self.lines if (hit := _FILE.match(line))}
        place = "?"
        for number, line in enumerate(self.lines):
            text = line.split("//")[0].strip()
            if hit := _LOCATION.match(line):
                place = f"{files.get(hit[1], '?')}:{hit[2]}"
            elif text.endswith(":"):
                self.active = self.active | self.waiting.pop(text[:-1], self._nobody())
            for hit in _STATEMENT.finditer(text):
                negated, guard, name, rest = hit.groups()
                found = self._step(name, _PIECE.findall(rest), self._guard(negated, guard), number)
                if found is not None:
                    kind, bits, addresses, lanes = found
                    is_in_loop = any(first <= number <= last for first, last in self.loops)
                    yield from self._access(name, kind, bits, addresses, lanes, place, is_in_loop=is_in_loop)

    def _nobody(self) -> Known:
        return np.zeros_like(self.active)

    def _guard(self, negated: str, guard: str | None) -> tuple[Known, bool]:
        """The threads that do it, and whether that is known."""
        if guard is None:
            return self.active, True
        value = self.registers.get(guard)
        if value is None or not value.known[self.active].all():
            return self.active, False
        return self.active & ((value.numbers != 0) ^ bool(negated)), True

    def _step(
        self, name: str, pieces: Sequence[str], guard: tuple[Known, bool], number: int
    ) -> tuple[Kind, int, _Value, Known] | None:
        """Do one statement; the access, where it is one."""
        who, is_sure = guard
        if name.split(".")[0] == "bra":
            self._jump(pieces[-1], who, number, is_sure=is_sure)
        elif name in ("ret", "exit", "trap"):
            if is_sure:
                self.active = self.active & ~who
        elif (found := _access_of(name, pieces)) is not None:
            kind, bits, address = found
            self._forget(name, pieces)
            return kind, bits, self._address(address), who
        else:
            self._compute(name, pieces, who)
        return None

    def _jump(self, label: str, who: Known, number: int, *, is_sure: bool) -> None:
        if any(last == number for _, last in self.loops):
            return  # back to a loop's begin: it is walked once
        self.waiting[label] = self.waiting.get(label, self._nobody()) | who
        if is_sure:
            self.active = self.active & ~who

    def _access(
        self, name: str, kind: Kind, bits: int, value: _Value, who: Known, place: str, *, is_in_loop: bool
    ) -> Iterator[SharedAccess]:
        """The access, if its addresses are known; one without addresses else."""
        # What the first block does not reach is looked at with all its threads.
        who = who if who.any() else self.everyone
        matrices = _MATRIX.search(name)
        if matrices is not None:
            who = who & (self.thread % LANES < 8 * int(matrices[2]))
        numbers, known = value.numbers.reshape(-1, LANES), value.known.reshape(-1, LANES)
        lanes = who.reshape(-1, LANES)
        rows = lanes.any(axis=1)
        how = f"{name.split('.')[0]}, {bits} bits" if matrices else f"{bits} bits"
        where = ("outside of loops", "in a loop")[is_in_loop]
        if not known[lanes].all() or not rows.any():
            yield SharedAccess(name, kind, is_in_loop, place, where, how, bits, np.full((1, LANES), -1, np.int64))
            return
        # Lanes that take no part want what another lane wants.
        first = numbers[np.arange(len(lanes)), lanes.argmax(axis=1)][:, None]
        addresses = np.where(lanes, numbers, first)[rows]
        yield SharedAccess(name, kind, is_in_loop, place, where, how, bits, np.unique(addresses, axis=0))

    def _address(self, text: str) -> _Value:
        """The value of `[%r1+16]` or `[symbol+16]`."""
        terms = [term.strip() for term in text.strip("[]").replace("+-", "-").replace("-", "+-").split("+")]
        total = _Value(self._all(0), np.ones_like(self.active))
        for term in filter(None, terms):
            each = self._value(term)
            total = _Value(total.numbers + each.numbers, total.known & each.known)
        return total

    def _value(self, text: str) -> _Value:
        """The value of a register, a symbol or a number; unknown for anything else."""
        known = np.ones_like(self.active)
        if text in self.special:
            return _Value(self.special[text], known)
        if text in self.registers:
            return self.registers[text]
        if text in self.symbols:
            return _Value(self._all(self.symbols[text]), known)
        if re.fullmatch(r"-?\d+U?", text):
            return _Value(self._all(int(text.rstrip("U"))), known)
        return _Value(self._all(0), ~known)

    def _assign(self, name: str, value: _Value, who: Known) -> None:
        old = self.registers.get(name)
        if old is not None and who.any():
            value = _Value(np.where(who, value.numbers, old.numbers), np.where(who, value.known, old.known))
        self.registers[name] = value

    def _forget(self, name: str, pieces: Sequence[str]) -> None:
        """Results of loads are unknown."""
        if name.startswith(("ld", "atom")):
            for register in pieces[0].strip("{}").split(","):
                self.registers[register.strip()] = _Value(self._all(0), self._nobody())

    def _compute(self, name: str, pieces: Sequence[str], who: Known) -> None:
        """Compute a register; an operation that is not listed makes it unknown."""
        if not pieces or not re.match(r"[%{a-z_]", pieces[0]):
            return
        targets = [part.strip() for part in pieces[0].strip("{}").split("|")[0].split(",")]
        value: _Value | None = None
        if len(targets) == 1 and not pieces[0].startswith("{"):
            value = self._result(name, pieces)
        for target in targets:
            self._assign(target, value or _Value(self._all(0), self._nobody()), who)

    def _result(self, name: str, pieces: Sequence[str]) -> _Value | None:
        what, *suffixes = name.split(".")
        if name.startswith("ld.param"):
            return self._parameter(pieces[1])
        if what == "elect":
            return _Value((self.thread % LANES == 0).astype(np.int64), np.ones_like(self.active))
        operands = [self._value(piece.strip()) for piece in pieces[1:]]
        bits, is_signed = _type_of(suffixes)
        if what not in ("mov", "selp") and any(re.fullmatch(r"b?f\d+(x2)?", suffix) for suffix in suffixes):
            return None
        if what == "shfl" and suffixes[1:2] == ["idx"]:
            return self._shuffled(operands)
        if what == "selp":
            first, second, chosen = operands
            numbers = np.where(chosen.numbers != 0, first.numbers, second.numbers)
            known = chosen.known & np.where(chosen.numbers != 0, first.known, second.known)
            return _Value(numbers, known)
        compute = _OPERATIONS.get(what)
        if compute is None:
            return None
        narrow = bits // 2 if "hi" in suffixes else bits
        values = [_wrapped(each.numbers, narrow, is_signed=is_signed) for each in operands]
        known = np.logical_and.reduce([each.known for each in operands])
        if what in ("and", "mul") and len(operands) == 2:
            for each, number in zip(operands, values, strict=True):
                known = known | (each.known & (number == 0))
        with np.errstate(all="ignore"):
            numbers = compute(values, suffixes, bits)
        wide = 2 * bits if "wide" in suffixes else bits
        return _Value(numbers if what == "setp" else _wrapped(numbers, wide, is_signed=is_signed), known)

    def _parameter(self, text: str) -> _Value | None:
        """An argument that is a whole number; others are addresses of memory that is no shared memory."""
        hit = re.fullmatch(r"\[[\w$]+_param_(\d+)\]", text)
        if hit is None or int(hit[1]) >= len(self.block.arguments):
            return None
        argument = self.block.arguments[int(hit[1])]
        return _Value(self._all(int(argument)), np.ones_like(self.active)) if isinstance(argument, np.integer) else None

    def _shuffled(self, operands: Sequence[_Value]) -> _Value:
        """What every lane gets of the lane that it names."""
        value, lane = operands[0], operands[1]
        source = self.thread // LANES * LANES + lane.numbers % LANES
        return _Value(value.numbers[source], value.known[source] & lane.known)


def _symbols(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Addresses of what lies in shared memory: static arrays one after another, dynamic memory behind them."""
    at = 0
    dynamic = []
    for line in lines:
        if hit := _SHARED.match(line):
            alignment, bits, name, count = hit.groups()
            if count == "":
                dynamic.append(name)
                continue
            at = -(-at // int(alignment or 1)) * int(alignment or 1)
            yield name, at
            at += int(bits) // 8 * int(count or 1)
    for name in dynamic:
        yield name, -(-at // ALIGNMENT) * ALIGNMENT


def _loops(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last line of every loop: from a label to the last branch back to it."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        text = line.split("//")[0].strip()
        if text.endswith(":"):
            labels[text[:-1]] = number
        elif (hit := re.search(r"\bbra(?:\.uni)?\s+([\w$]+);", text)) and hit[1] in labels:
            yield labels[hit[1]], number


def _access_of(name: str, pieces: Sequence[str]) -> tuple[Kind, int, str] | None:
    """Kind, bits of a lane and the address of an access; None for other statements."""
    what = name.split(".")[0]
    if _MATRIX.search(name):
        return ("read", 128, pieces[1]) if what == "ldmatrix" else ("write", 128, pieces[0])
    if name.startswith("cp.async.c") and ".shared" in name:
        return "write", 8 * int(pieces[2]), pieces[0]
    if what not in ("ld", "st", "atom", "red") or ".shared" not in name or "::cluster" in name or ".async" in name:
        return None
    hit = _TYPE_BITS.search(name)
    if hit is None:
        return None
    vector = re.search(r"\.v([248])\.", name)
    bits = int(hit[1]) * int(vector[1] if vector else 1)
    return ("read", bits, pieces[1]) if what in ("ld", "atom") else ("write", bits, pieces[0])


def _type_of(suffixes: Sequence[str]) -> tuple[int, bool]:
    """Bits and sign of the first type of an operation's name: 32 without one."""
    for suffix in suffixes:
        if re.fullmatch(r"[busf](8|16|32|64)", suffix):
            return int(suffix[1:]), suffix[0] == "s"
        if suffix == "pred":
            return 64, False
    return 32, False


def _wrapped(numbers: Numbers, bits: int, *, is_signed: bool) -> Numbers:
    """The lowest bits of numbers, with or without a sign."""
    if bits >= 64:
        return numbers
    low = numbers & ((1 << bits) - 1)
    return np.where(low >> (bits - 1) > 0, low - (1 << bits), low) if is_signed else low


_Compute = Callable[[Sequence[Numbers], Sequence[str], int], Any]
_COMPARED = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip


def _multiplied(v: Sequence[Numbers], suffixes: Sequence[str], bits: int) -> Numbers:
    product = v[0] * v[1]
    return product >> bits if "hi" in suffixes else product


def _compared(v: Sequence[Numbers], suffixes: Sequence[str], _: int) -> Numbers:
    return np.asarray(_COMPARED[suffixes[0]](v[0], v[1]), np.int64)


def _extracted(v: Sequence[Numbers], *_: Any) -> Numbers:
    return v[0] >> v[1] & ((1 << v[2]) - 1)


def _inserted(v: Sequence[Numbers], *_: Any) -> Numbers:
    mask = ((1 << v[3]) - 1) << v[2]
    return v[1] & ~mask | v[0] << v[2] & mask


def _looked_up(v: Sequence[Numbers], *_: Any) -> Numbers:
    a, b, c, table = v
    total = np.zeros_like(a)
    for place in range(8):
        term = (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
        total = total | np.where(table >> place & 1, term, 0)
    return total


_OPERATIONS: dict[str, _Compute] = {
    "mov": lambda v, *_: v[0],
    "cvt": lambda v, *_: v[0],
    "cvta": lambda v, *_: v[0],
    "add": lambda v, *_: v[0] + v[1],
    "sub": lambda v, *_: v[0] - v[1],
    "mul": _multiplied,
    "mad": lambda v, suffixes, bits: _multiplied(v, suffixes, bits) + v[2],
    "shl": lambda v, *_: v[0] << np.minimum(v[1], 62),
    "shr": lambda v, *_: v[0] >> np.minimum(v[1], 62),
    "and": lambda v, *_: v[0] & v[1],
    "or": lambda v, *_: v[0] | v[1],
    "xor": lambda v, *_: v[0] ^ v[1],
    "not": lambda v, suffixes, _: 1 - v[0] if "pred" in suffixes else ~v[0],
    "neg": lambda v, *_: -v[0],
    "min": lambda v, *_: np.minimum(v[0], v[1]),
    "max": lambda v, *_: np.maximum(v[0], v[1]),
    "div": lambda v, *_: np.sign(v[0]) * np.sign(v[1]) * (np.abs(v[0]) // np.maximum(np.abs(v[1]), 1)),
    "rem": lambda v, *_: np.sign(v[0]) * (np.abs(v[0]) % np.maximum(np.abs(v[1]), 1)),
    "setp": _compared,
    "bfe": _extracted,
    "bfi": _inserted,
    "lop3": _looked_up,
}
