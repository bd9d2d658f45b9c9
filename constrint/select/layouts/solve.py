"""Solves for a layout without bank conflicts: an integer problem of XOR masks, or of padding.

An XOR layout is linear over bits: two bytes whose offsets differ by `d` get addresses that differ by the image of `d`.
Two lanes of a phase have no conflict where that image has a bit among those that choose the bank. Each flip of a bit by
a higher one is an unknown of 0 or 1, so a pair of lanes is a rule about sums of unknowns modulo 2. Padding has few
unknowns; what each access allows is a table of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from constrint.errors import InfeasibleError, UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.hwmodels.bank_accesses import MAX_BYTES, Tile, TileAccess, check_tile, tile_access
from constrint.hwmodels.banks import BankAccess, BankConflicts, bank_access
from constrint.hwmodels.schema import GpuModel
from constrint.model import Constraint, Expr, Problem, Var, any_of, ceildiv, const, iff, table
from constrint.model.expr import add
from constrint.select.layouts.layout import TMA_SHIFT, TMA_UNIT, SharedLayout
from constrint.solve.budget import Limits, Status
from constrint.solve.explain.conflict import minimal_conflict
from constrint.solve.optimise import solve

#: The unknowns: flips of any bits, the three numbers of CUTLASS, one of TMA's modes, bytes of padding; or the first of
#: `xor` and `padding` that has a solution, which is the one of least memory.
FORMS = ("any", "xor", "swizzle", "tma", "padding")
#: Bytes of padding at a time are fewer than these; the longest interval between them.
MAX_PAD, MAX_INTERVAL = 256, 4096
#: Instructions of an access that are looked at first.
SOME = 2
#: Longest search without limits of the caller's, in seconds.
SECONDS = 60.0


@dataclass(frozen=True)
class LayoutSolution:
    """A layout for a tile, and the evidence that its accesses have no conflict.

    Args:
        gpu: The GPU.
        layout: The layout.
        problem: The problem that it solves.
        conflicts: The clocks of every access, counted over all lanes, by name.
    """

    gpu: GpuModel
    layout: SharedLayout
    problem: Problem
    conflicts: dict[str, BankConflicts]


def solve_layout(
    gpu: GpuModel | str,
    rows: int,
    columns: int,
    dtype: str,
    accesses: Sequence[str],
    *,
    form: str = "any",
    interval: int | None = None,
    limits: Limits | None = None,
) -> LayoutSolution:
    """Find the layout of least memory in which no access of a tile has a bank conflict.

    Among layouts of equal memory it has the fewest flips of bits, or the shortest interval between padding.

    Args:
        gpu: A GPU or its name.
        rows: Rows of the tile.
        columns: Elements of a row, contiguous in shared memory.
        dtype: Type of the elements.
        accesses: Names of every access that a kernel makes (`constrint banks --gpu NAME` lists them).
        form: The unknowns, of `FORMS`.
        interval: Bytes between padding where they are given, as Triton's 1,024 on gfx950; only for padding.
        limits: Limits of the search; at most a minute without them.

    Raises:
        InfeasibleError: When no layout of the form is without conflicts; `conflict` has the rules against it.
        UsageError: When the tile, an access or the form is none.
        UnsupportedError: When no source states how the GPU serves an access.
        LimitReachedError: When the search ended before it had an answer.
    """
    model = gpu if isinstance(gpu, GpuModel) else load_gpu(gpu)
    tile = check_tile(rows, columns, dtype)
    if not isinstance(form, str) or form not in FORMS:
        raise UnknownNameError("form of layout", str(form), FORMS)
    is_length = isinstance(interval, int) and not isinstance(interval, bool) and 0 < interval <= MAX_BYTES
    if interval is not None and not (form == "padding" and is_length):
        raise UsageError(f"interval: the bytes between padding, a number, for the form padding; got {interval!r}.")
    named = _accesses(model, tile, accesses)
    refusals = []
    for each in ("xor", "padding") if form == "any" else (form,):
        problem = layout_problem(model, tile, named, each, interval)
        found = solve(problem, limits or Limits(max_seconds=SECONDS))
        if found.status is not Status.INFEASIBLE:
            layout = layout_of(tile, found.require(), each)
            clocks = {access.name: layout.conflicts(model, access) for access in named}
            return LayoutSolution(model, layout, problem, clocks)
        refusals.append(_refusal(model, tile, named, problem, each))
    raise InfeasibleError("\n\n".join(map(str, refusals)), refusals[0].conflict)


def xor_layout(gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess]) -> SharedLayout | None:
    """The layout by XOR with the fewest flips in which accesses, named or a kernel's own, are free of conflicts.

    None where there is no such layout.

    Raises:
        LimitReachedError: When the search ended before it had an answer.
    """
    found = solve(layout_problem(gpu, tile, accesses, "xor"), Limits(max_seconds=SECONDS))
    return None if found.status is Status.INFEASIBLE else layout_of(tile, found.require(), "xor")


def _refusal(gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess], problem: Problem, form: str) -> InfeasibleError:
    """Why no layout of the form is without conflicts: the rules that exclude each other, in words."""
    conflict = minimal_conflict(problem, Limits(max_seconds=SECONDS), domains_in_force=True)
    reasons = dict.fromkeys(member.because for member in conflict.members if member.because)
    what = "padding" if form == "padding" else f"layout by XOR{'' if form == 'xor' else f' of the form {form}'}"
    head = f"{gpu.name}: no {what} of the tile {tile} is free of conflicts. These rules exclude each other:"
    if form != "padding":
        whole = max(accesses, key=lambda access: access.width_bits)
        reasons[f"{whole.name}: accesses of {whole.width_bits // 8} bytes stay whole, so no lower bit is flipped"] = (
            None
        )
    return InfeasibleError("\n".join([head, *(f"  {reason}" for reason in reasons)]), conflict)


def _accesses(gpu: GpuModel, tile: Tile, names: Sequence[str]) -> list[TileAccess]:
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or not names:
        raise UsageError("accesses: give the names of the accesses that the kernel makes, at least one.")
    named = [tile_access(gpu, name, tile) for name in dict.fromkeys(names)]
    for access in named:
        if access.width_bits & (access.width_bits - 1):
            raise UsageError(
                f"access {access.name}: layouts are solved for 32, 64 or 128 bits, not {access.width_bits}."
            )
    return named


def layout_problem(
    gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess], form: str, interval: int | None = None
) -> Problem:
    """The problem whose solutions are the layouts of a form without conflicts."""
    return _padding(gpu, tile, accesses, interval) if form == "padding" else _xor(gpu, tile, accesses, form)


def layout_of(tile: Tile, assignment: dict[str, int], form: str) -> SharedLayout:
    """The layout of a solution of `layout_problem`."""
    if form == "padding":
        layout = SharedLayout(tile, (), assignment["interval"], assignment["pad"], assignment["rows"])
        return layout if layout.pad or layout.row_bits else SharedLayout(tile)
    flips = [name.split("_")[1:] for name, value in assignment.items() if name.startswith("flip_") and value]
    return SharedLayout(tile, tuple(sorted((int(source), int(target)) for source, target in flips)))


def _xor(gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess], form: str) -> Problem:
    """Flips of the bits that choose a bank by the bits above them."""
    served = [bank_access(gpu, each.width_bits, each.kind) for each in accesses]
    num_bytes = tile.rows * tile.row_bytes
    lowest = max(2, *(_log2(each.width_bits // 8) for each in accesses))
    tops = [_log2(each.banks * each.bank_width_bytes) for each in served]
    problem = Problem("layout")
    flips: dict[tuple[int, int], Var] = {}
    because = "a bit of the offset flips a lower one that chooses the bank"
    for target in range(lowest, max(tops)):
        for source in range(min(tops), (num_bytes - 1).bit_length()):
            if source > target and num_bytes % (2 << target) == 0:
                flips[source, target] = problem.int_var(f"flip_{source}_{target}", values=[0, 1], because=because)
    seen: set[tuple[int, int, int]] = set()
    for access, how in zip(accesses, served, strict=True):
        if access.copies_whole_warps:
            continue
        crowd = _crowd(tile, access, how, {target for _, target in flips})
        for rule in [crowd] if crowd is not None else _pairs(tile, access, how, flips, seen):
            problem.add(rule)
    if form in ("swizzle", "tma"):
        _as_swizzle(problem, tile, flips, form)
    if flips:
        problem.minimise(add(*flips.values()))
    else:
        problem.int_var("flip_0_0", values=[0], because="no bit of the offset lies above those that choose a bank")
    return problem


def _log2(number: int) -> int:
    return max(0, number.bit_length() - 1)


def _pairs(
    tile: Tile,
    access: TileAccess,
    how: BankAccess,
    flips: dict[tuple[int, int], Var],
    seen: set[tuple[int, int, int]],
) -> Iterator[Constraint]:
    """The rule of every pair of lanes that a phase serves together: their addresses differ in a bit of the bank."""
    offsets = access.rows * tile.row_bytes + access.columns
    low, top = max(2, _log2(access.width_bits // 8)), _log2(how.banks * how.bank_width_bytes)
    for phase in how.phases:
        lanes = np.unique(offsets[:, list(phase)] >> low, axis=0) << low
        differences = np.unique(lanes[:, :, None] ^ lanes[:, None, :])
        for difference in differences[differences > 0].tolist():
            if (difference, low, top) in seen or (
                difference >> low & ((1 << (top - low)) - 1)
                and not any(difference >> source & 1 for source, _ in flips)
            ):
                continue
            seen.add((difference, low, top))
            bits = [_image(difference, target, flips) for target in range(low, top)]
            first, second = _example(offsets[:, list(phase)], phase, difference, low)
            text = (
                f"{access.name}: lanes {first} and {second} are served together and need different banks; their "
                f"offsets differ in the bits of {difference}"
            )
            yield any_of(*(bit % 2 == 1 for bit in bits)).labelled(text, f"{access.name}_{difference}")


def _crowd(tile: Tile, access: TileAccess, how: BankAccess, targets: set[int]) -> Constraint | None:
    """A rule that no layout keeps, where more lanes of a phase agree in the bits that stay than the others can part."""
    low, top = max(2, _log2(access.width_bits // 8)), _log2(how.banks * how.bank_width_bytes)
    stay = sum(1 << bit for bit in range(low, top) if bit not in targets)
    places = 1 << sum(bit in targets for bit in range(low, top))
    offsets = access.rows * tile.row_bytes + access.columns
    for number, phase in enumerate(how.phases):
        for lanes in np.unique(np.sort(offsets[:, list(phase)] >> low, axis=1), axis=0):
            agreeing = int(np.unique(np.unique(lanes) << low & stay, return_counts=True)[1].max())
            if agreeing > places:
                text = (
                    f"{access.name}: {agreeing} lanes of phase {number} agree in the bits that choose a bank and stay "
                    f"as they are, and the bits that may be flipped give {places} places"
                )
                return (const(agreeing) <= const(places)).labelled(text, f"{access.name}_places")
    return None


def _example(offsets: Any, phase: tuple[int, ...], difference: int, low: int) -> tuple[int, int]:
    """Two lanes of a phase whose offsets have the difference."""
    lanes = offsets >> low
    _, first, second = np.argwhere((lanes[:, :, None] ^ lanes[:, None, :]) == difference >> low)[0]
    return phase[first], phase[second]


def _image(difference: int, target: int, flips: dict[tuple[int, int], Var]) -> Expr:
    """Bit `target` of the image of a difference, before it is taken modulo 2."""
    terms = [var for (source, low), var in flips.items() if low == target and difference >> source & 1]
    return add(const(difference >> target & 1), *terms)


def _as_swizzle(problem: Problem, tile: Tile, flips: dict[tuple[int, int], Var], form: str) -> None:
    """The flips are those of `swizzle<B,M,S>`; those of TMA have a fixed unit and distance, and rows of their size."""
    targets = sorted({target for _, target in flips}) or [TMA_UNIT]
    shifts = sorted({source - target for source, target in flips}) or [TMA_SHIFT]
    bits = problem.int_var("bits", values=range(len(targets) + 1), because="bits that are flipped")
    unit = problem.int_var("unit", values=targets, because="the lowest of them")
    shift = problem.int_var("shift", values=shifts, because="how far above a bit the one lies that flips it")
    for (source, target), var in flips.items():
        is_flipped = (unit <= target) & (unit + bits > target) & (shift == source - target)
        problem.add(iff(var == 1, is_flipped), because="swizzle<bits, unit, shift>")
    problem.add(add(*flips.values(), const(0)) == bits, because="every bit is flipped by one that exists")
    if form == "tma":
        problem.add(unit == TMA_UNIT, because="TMA moves 16 bytes as one")
        problem.add(shift == TMA_SHIFT, because="TMA's modes flip by the bits three above")
        allowed = [math.log2(tile.row_bytes / 16)] if tile.row_bytes in (32, 64, 128) else []
        modes = [0, *(int(mode) for mode in allowed)]
        problem.add(any_of(*(bits == mode for mode in modes)), because="a mode's rows have its bytes: 32, 64 or 128")


def _padding(gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess], given: int | None) -> Problem:
    """Bytes after every interval, whose rows lie apart in the tile."""
    granule = max(4, *(access.width_bits // 8 for access in accesses))
    lengths = sorted({tile.row_bytes, *_powers(128, MAX_INTERVAL)}) if given is None else [given]
    intervals = [n for n in lengths if n % tile.row_bytes == 0 or tile.row_bytes % n == 0]
    if not intervals:
        raise UsageError(f"interval {given}: it is neither whole rows of {tile.row_bytes} bytes nor a part of one.")
    problem = Problem("layout")
    interval = problem.int_var("interval", values=intervals, because="bytes between padding: rows, or a part of one")
    because = f"accesses of {granule} bytes stay aligned, and longer padding meets the same banks"
    pad = problem.int_var("pad", values=range(0, MAX_PAD, granule), because=because)
    masks = sorted({mask for length in intervals for mask in _row_masks(tile, length)})
    rows = problem.int_var("rows", values=masks, because="rows of one interval differ in these bits of their numbers")
    every = itertools.product(*(problem.variables[name] for name in problem.names))
    candidates = [each for values in every if not (each := SharedLayout(tile, (), *values)).faults()]
    candidates = [each for each in candidates if each.num_bytes <= gpu.sm.max_smem_bytes_per_block]
    unknowns, listed = [interval, pad, rows], [(each.interval, each.pad, each.row_bits) for each in candidates]
    problem.add(table(unknowns, listed), because="an interval holds its rows, and a block can have the bytes")
    for access in accesses:
        if access.copies_whole_warps:
            num_bytes = access.width_bits // 8 * gpu.sm.warp_size
            text = f"{access.name}: a {gpu.terms.warp} copies {num_bytes:,} bytes one behind the other"
            problem.add((interval % num_bytes == 0) | (pad == 0), because=text)
            continue
        free = [(each.interval, each.pad, each.row_bits) for each in candidates if _is_free(gpu, each, access)]
        text = f"no phase of {access.name} has a conflict ({len(free):,} of {len(candidates):,} ways, over all lanes)"
        problem.add(table(unknowns, free), because=text, name=access.name)
    problem.minimise(pad * (ceildiv(tile.rows * tile.row_bytes, interval) - 1))
    problem.minimise(rows)
    return problem


def _row_masks(tile: Tile, interval: int) -> list[int]:
    """Bits of a row's number in which the rows of an interval may differ; 0 for rows in their order."""
    together, most = _log2(interval // tile.row_bytes), _log2(tile.rows)
    if tile.rows & (tile.rows - 1) or interval % tile.row_bytes or interval >> together != tile.row_bytes:
        return [0]
    return [0, *(sum(1 << bit for bit in bits) for bits in itertools.combinations(range(most), together))]


def _is_free(gpu: GpuModel, layout: SharedLayout, access: TileAccess) -> bool:
    """Whether no phase has a conflict; most layouts show one among the first instructions."""
    first = replace(access, rows=access.rows[:SOME], columns=access.columns[:SOME])
    return layout.conflicts(gpu, first).is_free and layout.conflicts(gpu, access).is_free


def _powers(first: int, last: int) -> list[int]:
    return [first << i for i in range((last // first).bit_length())]
