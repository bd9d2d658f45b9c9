"""The numbers of a GPU's model by flat names: what rules and problems call `gpu.sm_count`, `gpu.l2_size_bytes`.

The names are made of the schema: fields of `device` and `sm` have their own names, a field of a level of memory has
the level's name before it, and a rate has its dtype within: `matrix_bf16_flop_per_s`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from constrint.hwmodels.schema import DTYPES, Compute, Device, GpuModel, Memory
from constrint.hwmodels.vendors import list_vendors
from constrint.hwmodels.vendors.interface import Vendor

#: Prefix of every name in a text.
PREFIX = "gpu."
#: Fields that are no whole numbers.
_FRACTIONS = ("sustained_matrix_fraction",)
#: Meanings of the fields that every vendor's models have; `Vendor.meanings` has those of one vendor.
MEANINGS: Mapping[str, str] = {
    "sm_count": "SMs (CUs) that are enabled",
    "boost_clock_hz": "clock that belongs to the peak rates",
    "max_clock_hz": "highest clock that the device reports, where it is another",
    "num_xcds": "dies with an L2 of their own",
    "sms_per_xcd": "CUs of one die",
    "num_gpcs": "groups of SMs (GPCs)",
    "num_shader_engines": "shader engines",
    "max_cluster_blocks_portable": "blocks of a cluster that every such GPU takes",
    "max_cluster_blocks_nonportable": "blocks of a cluster at most",
    "warp_size": "threads of a warp (wave) unless a kernel asks otherwise",
    "num_partitions": "sub-partitions (SIMDs) of an SM (CU)",
    "max_threads_per_block": "threads of a block (workgroup)",
    "max_threads_per_sm": "resident threads of an SM (CU)",
    "max_warps_per_sm": "resident warps (waves) of an SM (CU)",
    "max_blocks_per_sm": "resident blocks of an SM (CU)",
    "max_registers_per_thread": "32-bit registers of a thread, without spilling",
    "smem_bytes_per_sm": "shared memory (LDS) of an SM (CU)",
    "max_smem_bytes_per_block": "shared memory (LDS) of a block",
    "smem_alloc_granularity_bytes": "step in which a block's shared memory is given out",
    "smem_reserved_bytes_per_block": "shared memory that the system takes of each block",
    "smem_banks": "banks of shared memory",
    "smem_bank_width_bytes": "width of a bank",
    "special_functions_per_clk": "exp2, log2, rcp, rsqrt, sin of an SM (CU)",
}
_LEVELS = {"l1": "L1 of an SM (CU)", "l2": "L2, all of it", "last_level": "last-level cache", "dram": "device memory"}
_CACHE_MEANINGS = {
    "size_bytes": "capacity",
    "size_bytes_per_xcd": "capacity on one die",
    "line_bytes": "line",
    "sector_bytes": "smallest transfer",
    "bandwidth_bytes_per_s": "bandwidth, reading",
    "assumed_bandwidth_bytes_per_s": "bandwidth as others measured it",
    "bus_width_bits": "width of its bus",
    "data_rate_bits_per_s": "data rate of one line of its bus",
}
_RATE_MEANINGS = {
    "matrix_flop_per_s": "dense peak of the matrix units",
    "matrix_fp16_accumulate_flop_per_s": "the same with 16-bit accumulation",
    "vector_flop_per_s": "peak of the plain units",
    "packed_vector_flop_per_s": "peak of packed instructions",
}
#: The unit of a field by the end of its name, the first that fits.
_UNITS = {
    r"_bytes_per_s$": "bytes/s",
    r"_bits_per_s$": "bits/s",
    r"_bits$": "bits",
    r"_flop_per_s$": "flop/s",
    r"_op_per_s$": "op/s",
    r"_hz$": "hertz",
    r"_per_clk$": "per clock",
    r"(^|_)bytes(_|$)": "bytes",
}


class Number(NamedTuple):
    """A number of a GPU's model.

    Args:
        name: As a text writes it, `gpu.sm_count`.
        path: Where it stands in the file, `device.sm_count`.
        unit: Its unit; empty for a count.
        meaning: The number's meaning, in a phrase.
        value: The number; None where the model does not know it, or it does not apply.
    """

    name: str
    path: str
    unit: str
    meaning: str
    value: int | None = None


def numbers_of(gpu: GpuModel) -> tuple[Number, ...]:
    """All numbers that models of this vendor have, with this GPU's values."""
    return tuple(number._replace(value=_value(gpu, number.path)) for number in _numbers(gpu.maker))


def all_numbers() -> dict[str, tuple[Number, tuple[str, ...]]]:
    """The numbers of all vendors' models by name, without values, and the vendors whose models have them."""
    vendors = list_vendors()
    by_vendor = {vendor.title: {number.name: number for number in _numbers(vendor)} for vendor in vendors}
    names = dict.fromkeys(name for numbers in by_vendor.values() for name in numbers)
    having = {name: tuple(title for title, numbers in by_vendor.items() if name in numbers) for name in names}
    return {name: (by_vendor[titles[0]][name], titles) for name, titles in having.items()}


def gpu_names(gpu: GpuModel) -> dict[str, int | str]:
    """The names that a text may use for a GPU's numbers: `parse(text, names=gpu_names(load_gpu("h200")))`.

    Returns:
        The number of each name, or in words why there is none.
    """
    unconfirmed = {entry.partition(":")[0].strip() for entry in gpu.unconfirmed}
    names: dict[str, int | str] = {}
    for number in numbers_of(gpu):
        if number.value is not None:
            names[number.name] = number.value
        elif number.path in unconfirmed:
            names[number.name] = f"no source confirms it for {gpu.name} (`constrint gpu {gpu.name.lower()}` says more)"
        else:
            names[number.name] = f"it does not apply to {gpu.name}, or its model does not state it"
    for name, (_, vendors) in all_numbers().items():
        names.setdefault(name, f"{gpu.name} has no such number; models of {' and '.join(vendors)} have it")
    return names


def _numbers(vendor: Vendor) -> Iterator[Number]:
    yield from _fields("device", Device, vendor, "")
    yield Number(f"{PREFIX}warp_size", "sm.warp_size", "", MEANINGS["warp_size"])
    yield from _fields("sm", vendor.sm_type, vendor, "")
    for level, struct in get_type_hints(Memory, include_extras=True).items():
        if level in _LEVELS:
            yield from _fields(f"memory.{level}", _plain(struct), vendor, f"{level}_")
    for field in Compute.__struct_fields__:
        if field in _RATE_MEANINGS:
            yield from _rates(field)


def _fields(path: str, struct: Any, vendor: Vendor, prefix: str) -> Iterator[Number]:
    """The numbers among the fields of a struct, and of the structs in it."""
    for field, hint in get_type_hints(struct, include_extras=True).items():
        kind = _plain(hint)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _fields(f"{path}.{field}", kind, vendor, f"{prefix}{field}_")
        elif kind in (int, float, bool) and field not in _FRACTIONS:
            name = prefix + field
            yield Number(PREFIX + name, f"{path}.{field}", _unit(name), _meaning(path, name, field, vendor))


def _rates(field: str) -> Iterator[Number]:
    """The rates of a table by dtype: the dtype stands behind the unit that does it."""
    for dtype in DTYPES[:2] if field == "vector_flop_per_s" else DTYPES:
        name = re.sub(r"(matrix|vector)_", rf"\1_{dtype}_", field, count=1)
        name = name.replace("flop_per_s", "op_per_s") if dtype.startswith(("int", "b")) and dtype != "bf16" else name
        yield Number(PREFIX + name, f"compute.{field}.{dtype}", _unit(name), f"{_RATE_MEANINGS[field]}, {dtype}")


def _meaning(path: str, name: str, field: str, vendor: Vendor) -> str:
    level = path.partition("memory.")[2]
    if level:
        return f"{_LEVELS[level]}: {_CACHE_MEANINGS[field]}"
    return {**MEANINGS, **vendor.meanings}.get(name, "")


def _unit(name: str) -> str:
    return next((unit for pattern, unit in _UNITS.items() if re.search(pattern, name)), "")


def _plain(hint: Any) -> Any:
    """The type of a field without what it is annotated with, and without None."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, types.UnionType):
            (hint,) = [part for part in get_args(hint) if part is not type(None)][:1]
        else:
            return hint


def _value(gpu: GpuModel, path: str) -> int | None:
    value: Any = gpu
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return None if value is None else round(value)
