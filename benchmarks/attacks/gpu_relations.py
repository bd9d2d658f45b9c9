"""Impossible GPUs: files in which one relation between quantities is broken; each must be refused in a plain sentence.

`python -m benchmarks.attacks.gpu_relations --count 300 --seed 1` prints a summary, and the first finds.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.attacks import asked_of, ended
from constrint.hwmodels import GpuModel, load_all
from constrint.hwmodels.files import parse_yaml
from constrint.hwmodels.load import check_file
from constrint.hwmodels.write import yaml_of

#: Breaks one relation of a parsed file: the beginnings of the keys that may be named for it; none where it cannot.
Break = Callable[[dict[str, Any], GpuModel, random.Random], tuple[str, ...]]
MODELS = load_all()


def too_fast(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A peak above what the units do at the clock."""
    units = gpu.maker.units().get(gpu.compiler_target)
    clock = gpu.device.max_clock_hz or gpu.device.boost_clock_hz
    if units is None or clock is None:
        return ()
    block, limits = draw.choice([("matrix", units.matrix), ("vector", units.vector)])
    rates = raw["compute"][f"{block}_flop_per_s"]
    dtype = draw.choice([dtype for dtype in rates if dtype in limits])
    rates[dtype] = limits[dtype] * gpu.device.sm_count * clock * draw.choice((1.2, 1.5, 2, 8))
    return (f"compute.{block}_flop_per_s.{dtype}",)


def fewer_processors(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """An eighth of the SMs, or of the clock, for the same peaks; a file of whole XCDs."""
    if not _has_whole_peaks(gpu):
        return ()
    if draw.random() < 0.5:
        for key in ("sm_count", "sms_per_xcd"):
            if raw["device"].get(key):
                raw["device"][key] = max(1, raw["device"][key] // 8)
    else:
        raw["device"]["boost_clock_hz"] //= 8
        raw["device"].pop("max_clock_hz", None)
    return ("compute.", "device.")


def _has_whole_peaks(gpu: GpuModel) -> bool:
    """Whether fp32 runs at more than half of what the units do: others are limited in ways of their own."""
    units, clock, rate = gpu.maker.units().get(gpu.compiler_target), gpu.device.boost_clock_hz, None
    if units is not None and clock is not None:
        rate = gpu.vector_flop_per_s("fp32")
    return rate is not None and rate > 0.5 * units.vector["fp32"] * gpu.device.sm_count * clock  # type: ignore[operator, union-attr]


def wider_is_faster(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A narrow type at a tenth of its rate."""
    rates = raw["compute"]["matrix_flop_per_s"]
    stated = [dtype for dtype in ("fp64", "tf32", "fp16", "fp8", "fp4") if rates.get(dtype)]
    if len(stated) < 2:
        return ()
    wide, narrow = draw.choice(list(pairwise(stated)))
    rates[narrow] = rates[wide] * 0.1
    return ("compute.matrix_flop_per_s.",)


def other_memory_rate(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A bandwidth that is not bus width times data rate, or half of the two."""
    dram = raw["memory"]["dram"]
    if "bus_width_bits" not in dram:
        return ()
    key = draw.choice(("bandwidth_bytes_per_s", "bus_width_bits", "data_rate_bits_per_s"))
    if key != "bandwidth_bytes_per_s" and draw.random() < 0.3:
        del dram[key]
    else:
        dram[key] = type(dram[key])(dram[key] * draw.choice((0.5, 0.9, 1.1, 2)))
    return ("memory.",)


def odd_cache(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A line that is no power of two, a sector that does not divide it, a size of broken lines."""
    level = draw.choice(("l1", "l2"))
    cache = raw["memory"][level]
    if not cache.get("line_bytes") or not cache.get("size_bytes"):
        return ()
    kind = draw.choice(("line", "sector", "size"))
    if kind == "line":
        cache["line_bytes"] = draw.choice((48, 96, 100, 129))
    elif kind == "sector":
        cache["sector_bytes"] = draw.choice((24, 48, 2 * cache["line_bytes"]))
    else:
        cache["size_bytes"] += draw.randrange(1, cache["line_bytes"])
    return (f"memory.{level}.", "memory.l2.size_bytes", "sm.smem_bytes_per_sm")


def inverted_levels(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A cache that is larger than the one behind it, or slower than device memory."""
    memory = raw["memory"]
    if draw.random() < 0.5 and memory["l2"].get("size_bytes"):
        memory["l2"]["size_bytes"] = memory["dram"]["size_bytes"] // 1024 * 2048
        memory["l2"].pop("size_bytes_per_xcd", None)
        return ("memory.l2.size_bytes",)
    memory["l2"]["bandwidth_bytes_per_s"] = memory["dram"]["bandwidth_bytes_per_s"] * draw.choice((0.1, 0.5, 0.9))
    return ("memory.l2.bandwidth_bytes_per_s",)


#: Values that break a relation of `sm` or `device` on every GPU: key, the value from the file's own, keys named for it.
SIMPLE: tuple[tuple[str, Callable[[dict[str, Any], Any], Any]], ...] = (
    ("max_warps_per_sm", lambda sm, value: value + 1),
    ("max_blocks_per_sm", lambda sm, value: sm["max_warps_per_sm"] * 2),
    ("smem_bytes_per_sm", lambda sm, value: value + 1),
    ("max_smem_bytes_per_block", lambda sm, value: sm["smem_bytes_per_sm"] + sm["smem_alloc_granularity_bytes"]),
    ("smem_banks", lambda sm, value: 31),
    ("smem_bank_width_bytes", lambda sm, value: 6),
    ("max_threads_per_block", lambda sm, value: value + 1),
    ("max_threads_per_sm", lambda sm, value: value * 2),
    ("registers_per_partition", lambda sm, value: value + 1),
    ("register_alloc_granularity_registers_per_warp", lambda sm, value: value * 16),
    ("max_registers_per_block", lambda sm, value: 1024),
    ("max_registers_per_thread", lambda sm, value: value * 4),
    ("warp_alloc_granularity_warps", lambda sm, value: 5),
    ("max_barriers_per_sm", lambda sm, value: 1),
    ("max_waves_per_simd", lambda sm, value: value + 1),
    ("max_multi_wave_blocks_per_sm", lambda sm, value: sm["max_blocks_per_sm"] + 1),
    ("smem_bytes_per_wgp", lambda sm, value: value + 1024),
    ("max_arch_vgprs_per_thread", lambda sm, value: value * 8),
    ("wave64", lambda sm, value: {**value, "vgprs_per_lane": value["vgprs_per_lane"] + 1}),
    ("wave32", lambda sm, value: {**value, "alloc_granularity_vgprs": value["alloc_granularity_vgprs"] * 7}),
)


def odd_processor(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """A limit of an SM that does not fit the others."""
    sm = raw["sm"]
    key, change = draw.choice([(key, change) for key, change in SIMPLE if sm.get(key)])
    sm[key] = change(sm, sm[key])
    return ("sm.",)


def too_many_groups(raw: dict[str, Any], gpu: GpuModel, draw: random.Random) -> tuple[str, ...]:
    """More groups of SMs than SMs."""
    key = "num_gpcs" if gpu.vendor == "nvidia" else "num_shader_engines"
    raw["device"][key] = gpu.device.sm_count + draw.randrange(1, 100)
    return (f"device.{key}",)


BREAKS: tuple[Break, ...] = (
    too_fast, fewer_processors, wider_is_faster, other_memory_rate, odd_cache, inverted_levels, odd_processor,
    odd_processor, odd_processor, too_many_groups,
)  # fmt: skip


def wrong_with(path: Path, keys: tuple[str, ...]) -> str:
    """Say what is wrong with the answer about an impossible file; empty where it is refused as it should be."""
    model, broken = check_file(path)
    named = [sentence.removeprefix(f"{path}: ") for sentence in broken]
    if not any(sentence.startswith(keys) for sentence in named):
        return f"no sentence begins with {' or '.join(keys)}: {named}"
    if model is None:
        return f"refused for its form: {named}"
    bad = [sentence for sentence in named if len(sentence) > 420 or not any(map(str.isdigit, sentence))]
    return f"a sentence without what was seen: {bad}" if bad else ""


def attack(count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """How often each relation was broken, and the finds."""
    counts: Counter[str] = Counter()
    finds = []
    number = 0
    while counts.total() < count:
        number += 1
        draw = random.Random(f"{seed}-{number}")
        gpu, breaking = draw.choice(MODELS), draw.choice(BREAKS)
        raw = parse_yaml(yaml_of(gpu), gpu.name)
        keys = breaking(raw, gpu, draw)
        if not keys:
            continue
        counts[breaking.__name__] += 1
        path = folder / f"impossible-{seed}-{number}.yaml"
        path.write_text(yaml.safe_dump(raw, sort_keys=False))
        if wrong := wrong_with(path, keys):
            finds.append(f"{path}: {gpu.name}, {breaking.__name__}: {wrong}")
        else:
            path.unlink()
    return counts, finds


def main() -> None:
    """Run the attack; exit code 1 where anything was found."""
    given = asked_of(__doc__, 300)
    counts, finds = attack(given.count, given.seed, Path(tempfile.mkdtemp(prefix="gpu-relations-")))
    summary = f"{given.count} impossible files, seed {given.seed}: {len(finds)} finds, {dict(counts)}"
    sys.exit(ended([find[:1000] for find in finds[:10]], f"gpu_relations: {summary}"))


if __name__ == "__main__":
    main()
