"""Compile one configuration of the Triton GEMM for a named GPU, without a GPU."""

from __future__ import annotations

from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.descriptor import needs_k_major, promotion_interval, rest_columns
from constrint.kernels.gemm.producer import NUM_WARPS, Shares
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES, WIDEST_BYTES, hint, is_aligned, unit, width_bytes
from constrint.select.spec import Config, Workload
from constrint.tune.compile import CompiledKernel, TritonSource, compile_triton, require_triton

#: Triton's names of operand and result types; partial sums of a split-K grid have 32 bits.
ELEMENT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "int8": "i8", "fp8": "fp8e4nv"}
OUTPUT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "int8": "i32", "fp8": "bf16"}
#: Parameters that the AMD back-end takes as options.
AMD_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
CONSTANTS = ("tile_m", "tile_n", "tile_k", "split_k")
POINTERS = ("a_ptr", "b_ptr", "c_ptr", "workspace_ptr", "counters_ptr")


def compile_config(gpu: GpuModel, workload: Workload, config: Config, layout: str = "rr") -> CompiledKernel:
    """Compile the kernel as it would be launched for this workload: aligned operands, no epilogue.

    Args:
        gpu: The GPU; none has to be present.
        workload: Sizes and dtype.
        config: A point of the space.
        layout: For A and for B, r (contiguous rows) or c (contiguous columns).

    Raises:
        UsageError: When triton is not installed.
        UnsupportedError: When the GPU lacks the dtype, or the compiler refuses.
    """
    require_triton()
    if config.get("producer"):
        return compile_triton(gpu, _producer_source(workload, config, layout))
    if config.get("descriptor"):
        return compile_triton(gpu, _descriptor_source(gpu, workload, config, layout))
    return compile_triton(gpu, _pointer_source(gpu, workload, config, layout))


def _constants(gpu: GpuModel, workload: Workload, config: Config) -> dict[str, Any]:
    """Compile-time arguments of both kernels."""
    import triton.language as tl

    dtype = workload.dtype
    constants: dict[str, Any] = {name: config[name] for name in CONSTANTS} | {
        "persistent": bool(config["persistent"]),
        "batched": False,
        "has_alpha": False,
        "activation": None,
        "input_precision": "tf32" if dtype == "tf32" else "ieee",
        "max_imprecise": promotion_interval(gpu, dtype, config["tile_k"]),
        "acc_dtype": tl.int32 if dtype == "int8" else tl.float32,
        "bias_ptr": None,
        "source_ptr": None,
    }
    if config["split_k"] == 1:
        constants |= {"workspace_ptr": None, "counters_ptr": None}
    return constants


def _pointer_source(gpu: GpuModel, workload: Workload, config: Config, layout: str) -> TritonSource:
    from constrint.kernels.gemm.kernel_triton import gemm_kernel

    m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
    is_turned = (layout[0] == "c", layout[1] == "c")
    # Lengths of the rows in memory.
    of_a, of_b = m if is_turned[0] else k, k if is_turned[1] else n
    element, output = ELEMENT_BYTES[workload.dtype], OUTPUT_BYTES[workload.dtype]
    hint_a, hint_b = hint(of_a, element), hint(of_b, element)
    constants = _constants(gpu, workload, config) | {
        "num_xcds": gpu.device.num_xcds,
        "xcd_chunk": config.get("xcd_chunk", 0),
        "even_k": k % (config["tile_k"] * config["split_k"]) == 0,
        "wide_offsets": False,
        "a_is_transposed": is_turned[0] and hint_a > 1,
        "b_is_transposed": is_turned[1] and hint_b > 1,
        "hint_a": hint_a,
        "hint_b": hint_b,
        "hint_c": hint(n, output) if width_bytes(n, output) == WIDEST_BYTES else 1,
        "stride_am" if is_turned[0] else "stride_ak": 1,
        "stride_bk" if is_turned[1] else "stride_bn": 1,
        "stride_cn": 1,
    }
    kind = _element_type(gpu, workload.dtype)
    types = {"a_ptr": f"*{kind}", "b_ptr": f"*{kind}"} | _output_types(workload.dtype)
    values = {"m": m, "n": n, "k": k, "stride_cm": n}
    values |= {"stride_ak" if is_turned[0] else "stride_am": of_a, "stride_bn" if is_turned[1] else "stride_bk": of_b}
    values |= {"stride_ab": m * k, "stride_bb": k * n, "stride_cb": m * n}
    options = {name: config[name] for name in ("num_warps", "num_stages")}
    if unit(gpu, workload.dtype).kind == "mfma":
        options |= {name: config[name] for name in AMD_OPTIONS if name in config}
    return _source(gemm_kernel, types, constants, values, options)


def _descriptor_source(gpu: GpuModel, workload: Workload, config: Config, layout: str) -> TritonSource:
    from constrint.kernels.gemm.kernel_descriptor import gemm_descriptor_kernel

    m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
    k_major = needs_k_major(workload.dtype)
    rest = rest_columns(config["tile_n"])
    is_turned = (layout[0] == "c" and not k_major, layout[1] == "c" or k_major)
    constants = _constants(gpu, workload, config) | {
        "epilogue_subtile": config["epilogue_subtile"],
        "a_is_transposed": is_turned[0],
        "b_is_transposed": is_turned[1],
        "rest_n": rest,
        "follows_copy": False,
    }
    element, output = _element_type(gpu, workload.dtype), OUTPUT_TYPES[workload.dtype]
    widest = config["tile_n"] - rest
    tile_a = (config["tile_m"], config["tile_k"])[:: -1 if is_turned[0] else 1]
    types = {
        "a_desc": f"tensordesc<{element}[{tile_a[0]},{tile_a[1]}]>",
        "c_desc": f"tensordesc<{output}[{config['tile_m']},{widest // config['epilogue_subtile']}]>",
        "c_rest_desc": f"tensordesc<{output}[{config['tile_m']},{rest}]>",
    }
    for name, columns in (("b_desc", widest), ("b_rest_desc", rest)):
        tile_b = (config["tile_k"], columns)[:: -1 if is_turned[1] else 1]
        types[name] = f"tensordesc<{element}[{tile_b[0]},{tile_b[1]}]>"
    if not rest:
        constants |= {"b_rest_desc": None, "c_rest_desc": None}
    values = {"m": m, "n": n, "k": k, "stride_cm": n, "stride_cb": m * n}
    options = {name: config[name] for name in ("num_warps", "num_stages")}
    return _source(gemm_descriptor_kernel, types | _output_types(workload.dtype), constants, values, options)


def _producer_source(workload: Workload, config: Config, layout: str) -> TritonSource:
    from constrint.kernels.gemm.kernel_hopper import block_layout, gemm_hopper_kernel

    dtype, k_major = workload.dtype, needs_k_major(workload.dtype)
    is_turned = {"is_a_transposed": layout[0] == "c" and not k_major, "is_b_transposed": layout[1] == "c" or k_major}
    shares = Shares.of(config, dtype)
    types = {}
    for name, block in shares.blocks(config["tile_k"], dtype, **is_turned).items():
        kind, size = ELEMENT_TYPES[dtype], ELEMENT_BYTES[dtype]
        if name == "c_desc":
            kind, size = OUTPUT_TYPES[dtype], OUTPUT_BYTES[dtype]
        types[name] = f"tensordesc<{kind}{list(block)},{block_layout(8 * size)!r}>"
    constants = shares.constants(config, dtype) | {
        "bias_ptr": None,
        "a_is_transposed": is_turned["is_a_transposed"],
        "b_is_transposed": is_turned["is_b_transposed"],
        "has_alpha": False,
        "activation": None,
    }
    if not shares.rest:
        constants["b_rest_desc"] = None
    return _source(gemm_hopper_kernel, types, constants, {}, {"num_warps": NUM_WARPS})


def _element_type(gpu: GpuModel, dtype: str) -> str:
    # CDNA3 has its own encoding of 8-bit floats.
    return "fp8e4b8" if dtype == "fp8" and gpu.arch.target == "gfx942" else ELEMENT_TYPES[dtype]


def _output_types(dtype: str) -> dict[str, str]:
    partial = "i32" if dtype == "int8" else "fp32"
    return {"c_ptr": f"*{OUTPUT_TYPES[dtype]}", "workspace_ptr": f"*{partial}", "counters_ptr": "*i32"}


def _source(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], values: dict[str, int], options: dict[str, Any]
) -> TritonSource:
    """Everything else is a 32-bit size; the compiler is told which ones are multiples of 16."""
    scalars = {"alpha": "fp32", "beta": "fp32"}
    types = {name: types.get(name, scalars.get(name, "i32")) for name in kernel.arg_names if name not in constants}
    aligned = {name for name, value in values.items() if is_aligned(value)} | set(POINTERS)
    return TritonSource(kernel, types, constants, frozenset(aligned & types.keys()), options)
