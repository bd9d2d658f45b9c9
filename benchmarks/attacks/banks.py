"""Attack on solved layouts and counted conflicts: random GPUs, tiles and accesses, and input that is none.

    python -m benchmarks.attacks.banks --count 300 --seed 1

A find is a layout with a conflict or with two bytes in one place, counted address by address; a tile that is refused
although trying every set of flips gives a layout, or fewer flips than the solved one has; a layout whose text does not
lead back to it; and an error that is no sentence.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.attacks import asked_of, ended
from constrint.errors import ConstrintError, InfeasibleError
from constrint.hwmodels import GpuModel, bank_conflicts, load_gpu
from constrint.hwmodels.bank_accesses import DTYPE_BYTES, Tile, TileAccess, access_names, check_tile, tile_access
from constrint.select.layouts import SharedLayout, parse_layout, solve_layout
from constrint.select.layouts.solve import FORMS, layout_problem

GPUS = ("h100", "a100", "mi300x", "mi355x", "mi210")
#: Most sets of flips that are tried one after the other.
MOST_SETS = 1 << 12
HOSTILE: tuple[Any, ...] = (
    None, "", "swizzle", "-1", -1, 0, 1.5, True, 10**30, float("nan"), [], [[]], {}, b"x", "32x32", "pad(1:+1)", "\0",
    "xor(99->98)", "stride(1)", np.nan, np.array([1.0]), object(),
)  # fmt: skip


def has_conflict(layout: SharedLayout, access: TileAccess, gpu: GpuModel) -> bool:
    """Whether two words of a phase lie in one bank, address by address."""
    places = layout.places(access)
    how = layout.conflicts(gpu, access).access
    for row in places.tolist():
        for phase in how.phases:
            words: dict[int, set[int]] = {}
            for lane in phase:
                for byte in range(row[lane], row[lane] + access.width_bits // 8, min(4, access.width_bits // 8)):
                    words.setdefault(byte // 4 % how.banks, set()).add(byte // 4)
            if any(len(found) > 1 for found in words.values()):
                return True
    return False


def faults_of(layout: SharedLayout, accesses: Sequence[TileAccess], gpu: GpuModel) -> list[str]:
    """What is wrong with a layout that was solved for."""
    tile = layout.tile
    rows, columns = np.divmod(np.arange(tile.rows * tile.row_bytes), tile.row_bytes)
    places = layout.addresses(rows, columns)
    faults = [f"{access.name} has a conflict" for access in accesses if has_conflict(layout, access, gpu)]
    if len(np.unique(places)) != len(places) or places.max() >= layout.num_bytes:
        faults.append("two bytes share a place, or one lies beyond the end")
    if parse_layout(str(layout), tile) != layout:
        faults.append("its text is another layout")
    return faults


def fewest_flips(gpu: GpuModel, tile: Tile, accesses: Sequence[TileAccess]) -> tuple[bool, int | None]:
    """Whether every set of flips could be tried, and the size of the smallest one without conflicts."""
    names = layout_problem(gpu, tile, accesses, "xor").names
    pairs = [(int(source), int(target)) for source, target in (name.split("_")[1:] for name in names)]
    if 1 << len(pairs) > MOST_SETS or pairs == [(0, 0)]:
        return False, None
    for count in range(len(pairs) + 1):
        for chosen in itertools.combinations(pairs, count):
            layout = SharedLayout(tile, tuple(sorted(chosen)))
            if all(layout.conflicts(gpu, access).is_free for access in accesses):
                return True, count
    return True, None


def one(rng: random.Random) -> tuple[str, list[str]]:
    """One random tile: what became of it, and the finds."""
    gpu = load_gpu(rng.choice(GPUS))
    dtype = rng.choice(tuple(DTYPE_BYTES))
    rows, columns = (rng.choice((8, 16, 32, 48, 64, 96, 128)) for _ in range(2))
    tile, names = check_tile(rows, columns, dtype), access_names(gpu, dtype)
    chosen = rng.sample(names, min(len(names), rng.randint(1, 3)))
    form = rng.choice(FORMS)
    what = f"{gpu.name} {tile} {chosen} {form}"
    try:
        accesses = [tile_access(gpu, name, tile) for name in chosen]
        found = solve_layout(gpu, rows, columns, dtype, chosen, form=form)
    except InfeasibleError as refusal:
        if form not in ("xor", "any"):
            return "infeasible", []
        is_tried, least = fewest_flips(gpu, tile, accesses)
        finds = [f"{what}: refused, but {least} flips do"] if is_tried and least is not None else []
        return "infeasible", finds if refusal.conflict is not None else [*finds, f"{what}: refused without a reason"]
    except ConstrintError:
        return "refused", []
    finds = [f"{what}: {found.layout}: {fault}" for fault in faults_of(found.layout, accesses, gpu)]
    if form in ("xor", "any") and not found.layout.pad:
        is_tried, least = fewest_flips(gpu, tile, accesses)
        if is_tried and least != len(found.layout.xor):
            finds.append(f"{what}: {found.layout} has {len(found.layout.xor)} flips, and {least} are enough")
    return "solved", finds


def hostile(rng: random.Random) -> list[str]:
    """Calls with values that are none; anything but a sentence is a find."""
    gpu, tile = load_gpu(rng.choice(GPUS)), check_tile(32, 32, "bf16")
    value, other = rng.choice(HOSTILE), rng.choice(HOSTILE)
    calls = (
        lambda: bank_conflicts(gpu, value, 32, "read"),
        lambda: bank_conflicts(gpu, np.zeros(gpu.sm.warp_size, int), value, other),
        lambda: check_tile(value, 32, other),
        lambda: parse_layout(value if isinstance(value, str) else str(value), tile),
        lambda: solve_layout(gpu, 32, 32, "bf16", value),
        lambda: solve_layout(gpu, 32, 32, "bf16", ["store_rows"], form=value),
        lambda: solve_layout(gpu, 32, 32, "bf16", ["store_rows"], form="padding", interval=value),
        lambda: solve_layout(gpu, value, other, "bf16", ["store_rows"]),
    )
    number = rng.randrange(len(calls))
    try:
        calls[number]()
    except ConstrintError as error:
        return [] if str(error).strip() else [f"call {number} with {value!r}, {other!r}: an empty sentence"]
    except Exception as error:  # noqa: BLE001 - anything but a sentence is a find
        return [f"call {number} with {value!r}, {other!r}: {type(error).__name__}: {error}"]
    return []


def attack(count: int, seed: int) -> tuple[dict[str, int], list[str]]:
    """How many of each outcome, and a line for every find."""
    rng, counts = random.Random(seed), dict.fromkeys(("solved", "infeasible", "refused"), 0)
    finds: list[str] = []
    for _ in range(count):
        outcome, found = one(rng)
        counts[outcome] += 1
        finds += [*found, *hostile(rng)]
    return counts, finds


def main(arguments: list[str] | None = None) -> int:
    """Print the counts and the finds; 1 if there is any."""
    asked = asked_of(__doc__, 100, arguments)
    counts, finds = attack(asked.count, asked.seed)
    listed = ", ".join(f"{value} {name}" for name, value in counts.items())
    return ended(finds, f"seed {asked.seed}: {listed}, {len(finds)} finds")


if __name__ == "__main__":
    sys.exit(main())
