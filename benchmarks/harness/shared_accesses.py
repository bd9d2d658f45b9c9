"""Accesses of shared memory in a compiled Triton kernel: the addresses of all lanes, from the layouts in its TTGIR.

A layout of registers maps register, lane and warp to an element of a tensor, one of shared memory maps an offset to it.
Their composition gives every lane its addresses. Elements that one lane has side by side are one access, of at most 128
bits, as Triton's lowering has it; operands of matrix instructions whose elements lie across a lane's are loaded by
`ldmatrix` (NVIDIA) or `ds_read_b64_tr_b16` and `_b8` (gfx950), which exchange them between lanes. LLVM may join two
reads of 64 bits (`ds_read2_b64`); no source states its phases on gfx950, and both are counted as they stand.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.hwmodels.banks import BankConflicts, Kind, bank_conflicts

Addresses = NDArray[np.int64]
_MEMORY = re.compile(r"memdesc<((?:\d+x)+)(\w+), .*?#ttg\.shared_memory(?:, mutable)?(?:, ((?:\d+x)*\d+))?>$")
_ROTATING = re.compile(r"amd_rotating_shared<\{vec = (\d+), perPhase = (\d+), maxPhase = (\d+), order = \[(\d), (\d)\]")
_BITS = re.compile(r"\d+")
#: Operations that move a tensor to or from shared memory: places of the tensor and of the memory (None: the result).
_MOVES: dict[str, tuple[Kind, int | None, int | None]] = {
    "ttg.local_load": ("read", None, 0),
    "ttg.local_store": ("write", 0, 1),
    "ttg.local_alloc": ("write", 0, None),
    "ttg.async_copy_global_to_local": ("write", 0, 1),
}
#: Operations of matrix units that read operands in place.
IN_PLACE = ("ttng.warp_group_dot", "ttng.tc_gen5_mma")
#: Loads that exchange elements between lanes, by the bits of an element: name, bytes that lie together, lanes among
#: which elements change places, and elements of each lane.
_LDMATRIX = {16: ("ldmatrix", 16, 32, 2)}
_READ_TR = {16: ("ds_read_b64_tr_b16", 8, 16, 4), 8: ("ds_read_b64_tr_b8", 8, 16, 8)}


@dataclass(frozen=True)
class SharedAccess:
    """One operation of a kernel on shared memory.

    Args:
        operation: Its name in TTGIR.
        kind: "read" or "write".
        is_in_loop: Whether it stands in a loop.
        tile: Shape and type of the tensor.
        layout: The layout of shared memory.
        how: How lanes access it: `128 bits`, `ldmatrix`, `in place`.
        width_bits: Bits of a lane.
        addresses: Byte addresses by instruction and lane.
    """

    operation: str
    kind: Kind
    is_in_loop: bool
    tile: str
    layout: str
    how: str
    width_bits: int
    addresses: Addresses

    def conflicts(self, gpu: GpuModel) -> BankConflicts:
        """The clocks of every instruction."""
        return bank_conflicts(gpu, self.addresses, self.width_bits, self.kind)


def shared_accesses(ttgir: str, gpu: GpuModel) -> list[SharedAccess]:
    """Every access of shared memory in a kernel's TTGIR, in its order."""
    from triton._C.libtriton import amd, gluon_ir, ir, nvidia

    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    amd.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttgir"
        path.write_text(ttgir)
        module = ir.parse_mlir_module(str(path), context)
    reader, loops = _Reader(gluon_ir.GluonOpBuilder(context), gpu), iter(_in_loops(ttgir))
    found: list[SharedAccess] = []

    def visit(operation: Any) -> None:
        name = operation.get_name()
        if name in _MOVES or name in IN_PLACE:
            is_in_loop = next(loops)
            found.extend(reader.read(operation, name, is_in_loop=is_in_loop))

    module.walk(visit)
    return found


def _in_loops(ttgir: str) -> Iterator[bool]:
    """Whether each of the operations above stands in a loop, in the order of the text."""
    names = re.compile("|".join(rf"(?:^|= ){re.escape(name)}\b" for name in (*_MOVES, *IN_PLACE)))
    opened: list[bool] = []
    for line in map(str.strip, ttgir.splitlines()):
        if names.search(line):
            yield any(opened)
        text = line.split(" loc(")[0]
        if text.startswith("}"):
            opened.pop()
        if text.endswith("{"):
            opened.append(any(loop in line for loop in ("scf.for", "scf.while", "} do")))


class _Reader:
    """Reads single operations."""

    def __init__(self, builder: Any, gpu: GpuModel) -> None:
        self.builder, self.gpu = builder, gpu

    def read(self, operation: Any, name: str, *, is_in_loop: bool) -> Iterator[SharedAccess]:
        """The accesses of an operation: one, or one for each operand in place."""
        if name in IN_PLACE:
            values = [operation.get_operand(place) for place in range(operation.get_num_operands())]
            for value in values:
                if _MEMORY.search(str(value.get_type())) and len(_memory_of(value)[0]) > 1:  # no barrier
                    yield self._in_place(name, value, is_in_loop=is_in_loop)
            return
        kind, tensor_at, memory_at = _MOVES[name]
        if tensor_at is not None and operation.get_num_operands() <= tensor_at:
            return  # memory is only reserved
        tensor = operation.get_result(0) if tensor_at is None else operation.get_operand(tensor_at)
        memory = operation.get_result(0) if memory_at is None else operation.get_operand(memory_at)
        shape, bits, allocated = _memory_of(memory)
        held = self.builder.get_gluon_layout_from_tensor(tensor)
        linear: Any = self.builder.to_linear_layout(held._to_ir(self.builder), list(shape))
        layout, offsets = self._offsets(memory, allocated)
        how, width, addresses = self._lanes(held, linear, offsets * (bits // 8), bits, kind)
        tile = f"{'x'.join(map(str, shape))} x {bits} bits"
        yield SharedAccess(name, kind, is_in_loop, tile, layout, how, width, addresses)

    def _offsets(self, memory: Any, shape: Sequence[int]) -> tuple[str, Addresses]:
        """The layout of shared memory in a few words, and the offset of each element, in elements."""
        if hit := _ROTATING.search(str(memory.get_type())):
            vec, per_phase, phases, fast, _ = map(int, hit.groups())
            return f"rotating({vec},{per_phase},{phases})", _rotating(shape, vec, per_phase, phases, fast)
        layout = self.builder.get_gluon_layout_from_memdesc(memory)
        pairs = getattr(layout, "interval_padding_pairs", [])
        linear = layout if pairs else self.builder.to_linear_layout(layout._to_ir(self.builder), list(shape))
        places = _span(linear.offset_bases, len(shape))
        offsets = np.zeros(shape, np.int64)
        numbers = np.arange(len(places))
        padded = numbers + sum(numbers // interval * pad for interval, pad in pairs)
        offsets[tuple(places.T % np.array(shape)[:, None])] = padded
        return _short(layout), offsets

    def _lanes(self, held: Any, linear: Any, offsets: Addresses, bits: int, kind: Kind) -> tuple[str, int, Addresses]:
        """How lanes access the elements that their registers hold, and where."""
        rank = offsets.ndim
        registers, lanes, warps = (
            _span(bases, rank) for bases in (linear.reg_bases, linear.lane_bases, linear.warp_bases)
        )
        places = warps[:, None, None] ^ registers[None, :, None] ^ lanes[None, None, :]
        addresses = offsets[tuple(np.moveaxis(places, -1, 0))]  # warp, register, lane
        order, count = _side_by_side(addresses[0], bits // 8)
        is_operand = kind == "read" and "DotOperand" in type(held).__name__
        if is_operand and (turned := self._turned(held, addresses, bits)) is not None:
            return turned
        grouped = addresses[:, order].reshape(len(warps), -1, count, addresses.shape[2])[:, :, 0]
        width = count * bits
        return f"{width} bits", width, _different(grouped.reshape(-1, addresses.shape[2]))

    def _turned(self, held: Any, addresses: Addresses, bits: int) -> tuple[str, int, Addresses] | None:
        """The addresses of a load that exchanges elements between lanes, where Triton uses one."""
        has_read_tr = self.gpu.arch.target == "gfx950"
        is_ldmatrix = type(held.parent).__name__ == "NVMMADistributedLayout" and self.gpu.sm.warp_size == 32
        load = (_LDMATRIX if is_ldmatrix else _READ_TR if has_read_tr else {}).get(bits)
        if load is None or (has_read_tr and _is_along(addresses, bits // 8)):
            return None
        name, num_bytes, group, each = load
        warps, registers, lanes = addresses.shape
        if registers % each:
            return None
        pieces = addresses.reshape(warps, registers // each, each, lanes // group, group)
        pieces = np.moveaxis(pieces, 2, 3).reshape(-1, group * each) // num_bytes * num_bytes
        different = np.sort(pieces, axis=1)
        firsts = np.ones(different.shape, bool)
        firsts[:, 1:] = different[:, 1:] != different[:, :-1]
        rows = group * each * (bits // 8) // num_bytes
        if (firsts.sum(axis=1) != rows).any():
            return None
        found = different[firsts].reshape(-1, rows)
        whole = self.gpu.sm.warp_size // rows
        if len(found) % whole:
            return None
        return name, 8 * num_bytes, _different(found.reshape(-1, rows * whole))

    def _in_place(self, name: str, value: Any, *, is_in_loop: bool) -> SharedAccess:
        """A matrix unit's reads: eight rows of 16 bytes at a time, along the contiguous elements."""
        shape, bits, allocated = _memory_of(value)
        layout, offsets = self._offsets(value, allocated)
        offsets = offsets * (bits // 8)
        if offsets.ndim == 2 and offsets[1, 0] - offsets[0, 0] == bits // 8:
            offsets = offsets.T
        flat = offsets.reshape(-1, offsets.shape[-1])
        firsts = flat[:, :: 128 // bits]
        rows = firsts[: len(firsts) // 8 * 8].reshape(-1, 8, firsts.shape[1])
        lanes = np.moveaxis(rows, 1, 2).reshape(-1, 8)
        lanes = lanes[: len(lanes) // 4 * 4].reshape(-1, 32)
        tile = f"{'x'.join(map(str, shape))} x {bits} bits"
        return SharedAccess(name, "read", is_in_loop, tile, layout, "in place", 128, lanes)


def _memory_of(value: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Shape, bits of an element, and the shape of which it is a part."""
    text = str(value.get_type())
    hit = _MEMORY.search(text)
    if hit is None:
        raise ValueError(f"no shared memory: {text}")
    shape = tuple(int(size) for size in hit[1].split("x") if size)
    bits = int(_BITS.findall(hit[2])[0])
    whole = tuple(int(size) for size in hit[3].split("x")) if hit[3] else shape
    return shape, bits, whole[-len(shape) :]


def _rotating(shape: Sequence[int], vec: int, per_phase: int, phases: int, fast: int) -> Addresses:
    """Offsets where the phase of a row, by which its vectors are exchanged, changes with the block of rows, too."""
    column, row = (np.indices(shape)[axis] for axis in (fast, 1 - fast))
    phase = row // per_phase % phases ^ row // (per_phase * phases) % phases
    offsets: Addresses = row * shape[fast] + (column // vec ^ phase) * vec + column % vec
    return offsets


def _span(bases: Sequence[Sequence[int]], rank: int) -> Addresses:
    """All sums (XOR) of bases, in the order of their numbers."""
    points = np.zeros((1, rank), np.int64)
    for base in bases:
        points = np.concatenate([points, points ^ np.array(base, np.int64)])
    return points


def _side_by_side(addresses: Addresses, num_bytes: int) -> tuple[list[int], int]:
    """An order of registers in which as many as go into 16 bytes lie side by side, and their number."""
    registers = len(addresses)
    bits = range((registers - 1).bit_length())
    step = [addresses[1 << bit] - addresses[0] for bit in bits]
    chosen: list[int] = []
    for count in itertools.takewhile(lambda n: 2 * n * num_bytes <= 16, (1 << i for i in range(5))):
        bit = next((bit for bit in bits if (step[bit] == count * num_bytes).all()), None)
        if bit is None or (addresses[0] % (2 * count * num_bytes)).any():
            break
        chosen.append(bit)
    rest = [bit for bit in bits if bit not in chosen]
    order = [
        sum((number >> place & 1) << bit for place, bit in enumerate([*chosen, *rest])) for number in range(registers)
    ]
    return order, 1 << len(chosen)


def _is_along(addresses: Addresses, num_bytes: int) -> bool:
    """Whether the first registers of a lane lie side by side, so that nothing has to be exchanged."""
    return bool((addresses[0, 1] - addresses[0, 0] == num_bytes).all())


def _different(addresses: Addresses) -> Addresses:
    """Instructions with different addresses."""
    return np.unique(addresses, axis=0)


def _short(layout: Any) -> str:
    """A layout in a few words."""
    name = type(layout).__name__.removesuffix("SharedLayout")
    if name == "Swizzled":
        return f"swizzled({layout.vec},{layout.per_phase},{layout.max_phase})"
    if name == "Padded":
        pairs = ",".join(f"{interval}:+{pad}" for interval, pad in layout.interval_padding_pairs)
        return f"padded({pairs})"
    if name == "NVMMA":
        return f"nvmma({layout.swizzle_byte_width}B{', transposed' * bool(layout.transposed)})"
    return name.lower()
