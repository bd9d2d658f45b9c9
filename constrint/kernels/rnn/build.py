"""Compile-time arguments of the recurrent kernels, and how to compile one configuration without a GPU."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.resources import ELEMENT_BYTES, Layer, depth_parts, padded_columns
from constrint.kernels.rnn.spec import SPECS
from constrint.select.spec import Config, Workload
from constrint.tune.compile import CompiledKernel, TritonSource, compile_triton, require_triton

#: Triton's names of input and state types.
ELEMENT_TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "tf32": "fp32"}
INTEGERS = ("batch", "time", "num_heads", "first_group", "wx_stride_b", "wx_stride_t")
#: Types of arguments that a call may lack. Those of the flags are wide: Triton makes the layout of a dot for the
#: narrowest load that its operand comes from, and a weight in two layouts takes shared memory twice.
OPTIONAL = {"initial": "*fp32", "rows": "*i32", "lengths": "*i32", "reset": "*i32", "grad_last": "*fp32"}
#: Strides over time and batch are multiples of D, and D is one of 16.
ALIGNED = frozenset({"wx_stride_b", "wx_stride_t"})


def constants_of(layer: Layer, config: Config, *, precision: str, on_nvidia: bool) -> dict[str, Any]:
    """Compile-time arguments that both kernels have.

    Args:
        layer: Cell, direction, head dimension, bytes of an element.
        config: A point of the direction's space; `exchange` forces the exchange with one program too (tests do).
        precision: How operands are multiplied; 16-bit ones have one way.
        on_nvidia: Whether NVIDIA's instructions may be written out.
    """
    from constrint.kernels.rnn import kernel_cells

    split = config["row_split"]
    exchange = bool(split > 1 or config.get("exchange", 0))
    out = padded_columns(layer.head_dim, split)
    slices = config["num_warps"] if exchange and config["split_depth"] else 1
    depth = layer.head_dim * (1 if layer.direction == "forward" else layer.cell.num_gates)
    main, rest = depth_parts(depth, slices) if exchange else (out, 0)
    return {
        "cell": getattr(kernel_cells, f"{layer.cell.name}_{layer.direction}"),
        "num_gates": layer.cell.num_gates,
        "num_states": layer.cell.num_states,
        "head_dim": layer.head_dim,
        "tile_batch": config["tile_batch"],
        "tile_out": out,
        "row_split": split,
        "exchange": exchange,
        "depth_main": main,
        "depth_rest": rest,
        "slices": slices,
        "num_stages": config["num_stages"],
        "fast": on_nvidia and layer.element_bytes == ELEMENT_BYTES["bf16"],
        "has_asm": on_nvidia,
        "precision": precision,
    }


def precision_of(dtype: str, *, on_nvidia: bool) -> str:
    """How a dtype's operands are multiplied.

    fp32 takes three tf32 products where there are such units: as good as fp32, where fp32 on the plain units took 13
    times as long on an H200 (LSTM 12x64, 18.7 ms against 1.4 ms).
    """
    if not on_nvidia or dtype not in ("fp32", "tf32"):
        return "ieee"
    return "tf32x3" if dtype == "fp32" else "tf32"


def compile_config(gpu: GpuModel, workload: Workload, config: Config, inputs: Collection[str] = ()) -> CompiledKernel:
    """Compile a kernel as a layer with bias launches it.

    Args:
        gpu: The GPU compiled for.
        workload: Sizes and dtype.
        config: A point of the kernel's space.
        inputs: Which of the optional arguments `OPTIONAL` it is given besides.

    Raises:
        UsageError: When triton is not installed.
        UnsupportedError: When the GPU lacks the dtype, or the compiler refuses.
    """
    require_triton()
    spec = SPECS[workload.kernel]
    layer = spec.layer(workload)
    on_nvidia = gpu.vendor == "nvidia"
    element = f"*{ELEMENT_TYPES[workload.dtype]}"
    precision = precision_of(workload.dtype, on_nvidia=on_nvidia)
    constants = constants_of(layer, config, precision=precision, on_nvidia=on_nvidia)
    types = dict.fromkeys(INTEGERS, "i32") | dict.fromkeys(("wx", "r", "states", "saved"), element)
    missing = ["initial", "rows", "lengths", "reset"]
    optional = OPTIONAL | dict.fromkeys(("grad1", "grad2", "grad3"), element)
    if layer.direction == "forward":
        from constrint.kernels.rnn.kernel_forward import forward_kernel as kernel

        types |= {"bias": element}
        if constants["exchange"] and "initial" in inputs:
            types["start"] = element
        else:
            missing.append("start")
        constants |= {"save_gates": not config["recompute"]}
    else:
        from constrint.kernels.rnn.kernel_backward import backward_kernel as kernel

        types |= {"grad0": element, "grad_slots": element, "grad_initial": "*fp32", "clip": "fp32"}
        missing += ["grad1", "grad2", "grad3", "grad_last"]
        shift_free = "grad1" not in inputs and layer.element_bytes == ELEMENT_BYTES["bf16"]
        constants |= {"has_clip": False, "shift_free": shift_free}
    if constants["exchange"]:
        types["arrived"] = "*i32"
    else:
        missing.append("arrived")
    types |= {name: optional[name] for name in missing if name in inputs}
    constants |= {name: None for name in missing if name not in inputs}
    aligned = ALIGNED | {name for name, kind in types.items() if kind.startswith("*")}
    return compile_triton(
        gpu, TritonSource(kernel, types, constants, frozenset(aligned), options_of(config, constants))
    )


def options_of(config: Config, constants: dict[str, Any]) -> dict[str, Any]:
    """Back-end options: programs that wait for each other are launched together or not at all."""
    options: dict[str, Any] = {"num_warps": config["num_warps"]}
    if constants["row_split"] > 1:
        options["launch_cooperative_grid"] = True
    return options
