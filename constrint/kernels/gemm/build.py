"""Compile one configuration of the Triton GEMM for a named GPU, without a GPU."""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.resources import is_aligned, unit
from constrint.select.spec import Config, Workload
from constrint.tune.compile import CompiledKernel, TritonSource, compile_triton, require_triton

#: Triton's names of operand and result types; partial sums of a split-K grid have 32 bits.
ELEMENT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "int8": "i8", "fp8": "fp8e4nv"}
OUTPUT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "int8": "i32", "fp8": "bf16"}
SIZES = ("m", "n", "k", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cs", "stride_cm", "stride_cn")
#: Parameters that the AMD back-end takes as options.
AMD_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")


def compile_config(gpu: GpuModel, workload: Workload, config: Config) -> CompiledKernel:
    """Compile the kernel as it would be launched for this workload: row-major, contiguous operands.

    Raises:
        UsageError: When triton is not installed.
        UnsupportedError: When the GPU lacks the dtype, or the compiler refuses.
    """
    require_triton()
    import triton.language as tl

    from constrint.kernels.gemm.kernel_triton import gemm_kernel

    dtype = workload.dtype
    found = unit(gpu, dtype)
    element = ELEMENT_TYPES[dtype]
    if dtype == "fp8" and gpu.arch.target == "gfx942":
        element = "fp8e4b8"  # CDNA3 has its own encoding of 8-bit floats
    is_split = config["split_k"] > 1
    output = ("i32" if dtype == "int8" else "fp32") if is_split else OUTPUT_TYPES[dtype]
    m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
    constants = {name: config[name] for name in ("tile_m", "tile_n", "tile_k", "group_m", "split_k")} | {
        "persistent": bool(config["persistent"]),
        "num_xcds": gpu.device.num_xcds,
        "xcd_remap": bool(config.get("xcd_remap", 0)),
        "even_k": k % (config["tile_k"] * config["split_k"]) == 0,
        "input_precision": "tf32" if dtype == "tf32" else "ieee",
        "acc_dtype": tl.int32 if dtype == "int8" else tl.float32,
        "stride_ak": 1,
        "stride_bn": 1,
        "stride_cn": 1,
    }
    types = {"a_ptr": f"*{element}", "b_ptr": f"*{element}", "c_ptr": f"*{output}", "num_blocks": "i32"}
    types |= {name: "i32" for name in SIZES if name not in constants}
    values = {"m": m, "n": n, "k": k, "stride_am": k, "stride_bk": n, "stride_cm": n, "stride_cs": m * n}
    aligned = {name for name, value in values.items() if is_aligned(value)}
    options = {name: config[name] for name in ("num_warps", "num_stages")}
    if found.kind == "mfma":
        options |= {name: config[name] for name in AMD_OPTIONS if name in config}
    return compile_triton(
        gpu, TritonSource(gemm_kernel, types, constants, frozenset(aligned | {"a_ptr", "b_ptr", "c_ptr"}), options)
    )
