"""Lookup tables of PyTorch Inductor's matrix products (`torch._inductor.config.lookup_table.table`), as JSON.

A key states operands and operation; a value lists configurations of Inductor's own templates, among which Inductor
chooses by timing. The layout follows `torch/_inductor/lookup_table` of PyTorch 2.10 to 2.13. The records measured
constrint's kernel, not the template `triton::mm`, so the configurations are good guesses without times. A table without
times cannot be imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from constrint.answers.registry import RecordFormat
from constrint.errors import UsageError
from constrint.tune.store.choices import place_of
from constrint.tune.store.record import TuningRecord, digest

#: Most configurations of a product; Inductor times them all.
MOST = 5
DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "tf32": "torch.float32"}
#: Parameters in the words of the template, and the values of others that the template requires.
NAMES = {"tile_m": "BLOCK_M", "tile_n": "BLOCK_N", "tile_k": "BLOCK_K", "group_m": "GROUP_M"}
OWN = ("num_warps", "num_stages", "matrix_instr_nonkdim", "waves_per_eu", "kpack")
FIXED = {"split_k": 1, "persistent": 0, "xcd_chunk": 0}
#: Workload options that a key can state.
LAYOUTS = {"batch", "transpose_a", "transpose_b"}


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """The best configurations of every product that the template computes in the same way."""
    table: dict[str, list[TuningRecord]] = {}
    gpus: set[str] = set()
    for record in records:
        if _fits(record):
            table.setdefault(_key(record), []).append(record)
            gpus.add(record.gpu)
    if not table:
        raise UsageError(
            "none of these records fits Inductor's template triton::mm: it takes gemm.pointer in bf16, fp16 or tf32 "
            "with split_k = 1 and persistent = 0, without bias, source or a wide output."
        )
    if len(gpus) > 1:
        raise UsageError(f"a lookup table is for one GPU, and these records are of {', '.join(sorted(gpus))}: --gpu.")
    entries = {key: _configs(of_key) for key, of_key in sorted(table.items())}
    yield json.dumps(entries, indent=1) + "\n"


def _fits(record: TuningRecord) -> bool:
    """Whether the template computes the record's product in the same way."""
    config, names = record.config, {*NAMES, *OWN, *FIXED}
    is_product = record.kernel == "gemm.pointer" and record.sizes.keys() == {"m", "n", "k"}
    is_plain = record.dtype in DTYPES and all(name in LAYOUTS or not on for name, on in record.options.items())
    is_same = config.keys() <= names and all(config.get(name, value) == value for name, value in FIXED.items())
    has_tiles = {"tile_m", "tile_n", "tile_k", "num_warps", "num_stages"} <= config.keys()
    is_measured = record.is_ok and record.figures is not None
    return is_product and is_plain and is_same and has_tiles and is_measured


def _key(record: TuningRecord) -> str:
    """The key: operands with dtype, shape and strides, and the operation."""
    m, n, k = (record.sizes[name] for name in "mnk")
    batch = record.options.get("batch", 1)
    operands = []
    for rows, columns, is_turned in ((m, k, "transpose_a"), (k, n, "transpose_b")):
        shape, strides = [rows, columns], [1, rows] if record.options.get(is_turned) else [columns, 1]
        if batch > 1:
            shape, strides = [batch, *shape], [rows * columns, *strides]
        operands.append(f"({DTYPES[record.dtype]}, {shape}, {strides})")
    return f"({', '.join(operands)})+{'bmm' if batch > 1 else 'mm'}"


def _configs(records: list[TuningRecord]) -> list[dict[str, Any]]:
    """The best configurations of a product under the template's names."""
    configs: dict[str, dict[str, Any]] = {}
    for record in sorted(records, key=place_of):
        config = {theirs: record.config[ours] for ours, theirs in NAMES.items() if ours in record.config}
        config |= {name: record.config[name] for name in OWN if name in record.config}
        entry = {
            "template_id": "triton::bmm" if record.options.get("batch", 1) > 1 else "triton::mm",
            "GROUP_M": 8,
            **config,
            "EVEN_K": record.sizes["k"] % int(record.config["tile_k"] or 1) == 0,
            "ALLOW_TF32": record.dtype == "tf32",
            "USE_FAST_ACCUM": False,
            "ACC_TYPE": "tl.float32",
        }
        configs.setdefault(digest(entry), entry)
    return list(configs.values())[:MOST]


RECORDS = RecordFormat("inductor", "a lookup table for PyTorch Inductor's matrix products: good guesses", write)
