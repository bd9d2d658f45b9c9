"""Compile a random sample of GEMM configurations for 13 GPU targets without a GPU, and record what they take.

Writes the table that the resource rules of `constrint/kernels/gemm/resources.py` are checked against and that
`fit_gemm_registers.py` fits: shared memory, registers, spills and the matrix instruction, as compiled.

    python benchmarks/compile_gemm.py --per-pair 28 --out tests/data/triton_gemm_resources.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

CUDA_TARGETS = {"sm_75": 75, "sm_80": 80, "sm_86": 86, "sm_89": 89, "sm_90": 90, "sm_100": 100, "sm_120": 120}
HIP_TARGETS = {"gfx908": 64, "gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
DTYPES = {
    "sm_75": ("fp16",),
    "sm_80": ("fp16", "bf16", "tf32", "int8"),
    "sm_86": ("fp16",),
    "sm_89": ("bf16", "fp8"),
    "sm_90": ("fp16", "bf16", "fp8", "tf32", "int8"),
    "sm_100": ("bf16", "fp8", "tf32", "int8"),
    "sm_120": ("bf16", "fp8", "tf32", "int8"),
    "gfx908": ("fp16", "bf16", "int8"),
    "gfx90a": ("fp16", "bf16", "int8"),
    "gfx942": ("fp16", "bf16", "fp8", "tf32", "int8"),
    "gfx950": ("bf16", "fp8", "int8"),
    "gfx1100": ("fp16", "bf16", "int8"),
    "gfx1201": ("bf16", "fp8", "int8"),
}
#: Shared memory limits in KiB, only to keep the sample near what could fit.
LIMIT_KIB = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99, "gfx950": 160}
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "tf32": 4}
OUTPUT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "int8": "i32", "fp8": "bf16"}
CONFIG_KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
KNOB_KEYS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
RESULT_KEYS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")
SIZES = ("m", "n", "k", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cs", "stride_cm", "stride_cn")


def plan(per_pair: int, seed: int) -> list[dict[str, Any]]:
    """A random sample of distinct configurations per (target, dtype), rejecting those far from fitting."""
    rng = random.Random(seed)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for target, dtypes in DTYPES.items():
        for dtype in dtypes:
            wanted = len(rows) + per_pair
            while len(rows) < wanted:
                row = {"target": target, "dtype": dtype, **_draw(rng, target)}
                threads = row["num_warps"] * HIP_TARGETS.get(target, 32)
                bytes_ = row["num_stages"] * (row["tile_m"] + row["tile_n"]) * row["tile_k"] * ELEMENT_BYTES[dtype]
                fits = bytes_ <= 1.25 * 1024 * LIMIT_KIB.get(target, 64)
                if 2 <= row["tile_m"] * row["tile_n"] / threads <= 260 and fits:
                    rows.setdefault(tuple(row.values()), row)
    return list(rows.values())


def _draw(rng: random.Random, target: str) -> dict[str, int]:
    row = {
        "tile_m": rng.choice([16, 32, 64, 64, 128, 128, 256]),
        "tile_n": rng.choice([16, 32, 64, 128, 128, 256]),
        "tile_k": rng.choice([16, 32, 64, 128]),
        "num_warps": rng.choice([1, 2, 4, 4, 8, 8] + ([16] if target in HIP_TARGETS else [])),
        "num_stages": rng.choice([1, 2, 2, 3, 3, 4, 5]),
        "persistent": rng.choice([0, 0, 0, 1]),
        "split_k": rng.choice([1, 1, 1, 4]),
        "matrix_instr_nonkdim": 0,
        "waves_per_eu": 0,
        "kpack": 1,
    }
    if row["persistent"]:
        row["split_k"] = 1
    if target.startswith("gfx9"):
        row["matrix_instr_nonkdim"] = rng.choice([0, 0, 16, 32])
        row["waves_per_eu"] = rng.choice([0, 0, 0, 1, 2, 3, 4])
        row["kpack"] = rng.choice([1, 1, 2]) if target != "gfx950" else 1
    return row


def compile_row(row: dict[str, Any]) -> dict[str, Any]:
    """Compile one configuration and read its resources from the binary."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from constrint.kernels.gemm.kernel_triton import gemm_kernel

    target, dtype = row["target"], row["dtype"]
    is_hip = target in HIP_TARGETS
    element = {"tf32": "fp32", "int8": "i8"}.get(dtype, dtype)
    if dtype == "fp8":
        element = "fp8e4b8" if target == "gfx942" else "fp8e4nv"
    output = OUTPUT_TYPES[dtype]
    if row["split_k"] > 1:
        output = "i32" if dtype == "int8" else "fp32"
    constants = {
        **{key: row[key] for key in ("tile_m", "tile_n", "tile_k", "split_k")},
        "group_m": 8,
        "persistent": bool(row["persistent"]),
        "num_xcds": 8 if is_hip else 1,
        "xcd_remap": False,
        "even_k": True,
        "input_precision": "tf32" if dtype == "tf32" else "ieee",
        "acc_dtype": tl.int32 if dtype == "int8" else tl.float32,
        **dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), 1),
    }
    kinds = {"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": f"*{output}", "num_blocks": "i32"}
    kinds |= dict.fromkeys(SIZES, "i32") | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds[name] for name in gemm_kernel.arg_names}
    attributes = {}
    for i, (name, kind) in enumerate(signature.items()):
        if kind.startswith("*"):
            attributes[(i,)] = [["tt.divisibility", 16]] + ([["tt.pointer_range", 32]] if is_hip else [])
        elif kind == "i32" and name != "num_blocks":
            attributes[(i,)] = [["tt.divisibility", 16]]
    options = {key: row[key] for key in ("num_warps", "num_stages")}
    if target.startswith("gfx9"):
        options |= {key: row[key] for key in KNOB_KEYS}
    gpu = GPUTarget("hip", target, HIP_TARGETS[target]) if is_hip else GPUTarget("cuda", CUDA_TARGETS[target], 32)
    kernel = triton.compile(
        ASTSource(fn=gemm_kernel, signature=signature, constexprs=constants, attrs=attributes), gpu, options
    )
    return {"smem_bytes": kernel.metadata.shared, **(_amd(kernel) if is_hip else _nvidia(kernel))}


def _nvidia(kernel: Any) -> dict[str, Any]:
    import triton.backends.nvidia as backend

    tool = Path(backend.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError("cuobjdump printed no resource usage")
    used = re.search(r"(wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*?\.(m\d+n\d+k\d+|kind::\w+)", kernel.asm["ptx"])
    return {
        "registers": int(found[1]),
        "agprs": 0,
        "spill_bytes": int(found[2]),
        "instruction": f"{used[1]} {used[2]}" if used else "",
    }


def _amd(kernel: Any) -> dict[str, Any]:
    text = kernel.asm["amdgcn"]

    def field(name: str) -> int:
        found = re.search(rf"\.{name}:\s*(\d+)", text)
        return int(found[1]) if found else 0

    used = re.search(r"\bv_(?:mfma|wmma)_\w+", text)
    return {
        "registers": field("vgpr_count"),
        "agprs": field("agpr_count"),
        "spill_bytes": field("private_segment_fixed_size"),
        "instruction": used[0] if used else "",
    }


def main() -> None:
    """Compile the sample; progress goes to stderr, one line per row to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-pair", type=int, default=28, help="configurations per target and dtype")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
    rows = plan(args.per_pair, args.seed)
    with tempfile.TemporaryDirectory() as cache, args.out.open("w", newline="") as file:
        os.environ["TRITON_CACHE_DIR"] = cache
        import triton

        file.write(
            f"# compiled, not measured: triton {triton.__version__}, by benchmarks/compile_gemm.py, seed {args.seed}\n"
        )
        writer = csv.DictWriter(file, ["target", "dtype", *CONFIG_KEYS, *KNOB_KEYS, *RESULT_KEYS])
        writer.writeheader()
        for done, row in enumerate(rows, 1):
            result: dict[str, Any] = dict.fromkeys(RESULT_KEYS, "")
            try:
                result |= compile_row(row)
            except Exception as error:  # noqa: BLE001 - a compiler failure is a row of the table
                cause = str(error.__cause__ or error).strip().splitlines()
                result["error"] = (cause[-1] if cause else type(error).__name__)[-120:]
            writer.writerow(row | result)
            file.flush()
            print(f"\r{done}/{len(rows)} {row['target']} {row['dtype']}    ", end="", file=sys.stderr)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
