"""The arguments of the CDNA kernels, for launching them and for compiling them. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cdna.layouts import LANES, SIDE, element_flips, offset_bases, solved_layout
from constrint.kernels.gemm.cdna.shape import WAVES, fills_accumulators, is_scaled, lane_elements
from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.launch.triton import TritonLaunch
from constrint.select.layouts import SharedLayout

#: fp8 in the words of the instruction that takes scales.
SCALED_TYPE = "e4m3"


def cdna_launches(call: GemmCall, config: Mapping[str, int]) -> list[TritonLaunch]:
    """State the launches of a call: one, or several for a batch that exceeds the largest grid."""
    return [_launch(part, config) for part in call.parts()]


def _launch(call: GemmCall, config: Mapping[str, int]) -> TritonLaunch:
    from constrint.kernels.gemm.cdna.kernel import gemm_cdna3_kernel, gemm_cdna4_kernel

    gpu = call.machine.gpu
    assert gpu is not None  # the spec refuses products without a modelled GPU
    a, b, out = call.a, call.b, call.out
    (batch, m, k), n = a.shape, b.shape[2]
    is_along = b.stride(1) == 1
    tiles = -(-m // config["tile_m"]) * -(-n // config["tile_n"])
    arguments: dict[str, Any] = {name: config[name] for name in ("tile_m", "tile_n", "tile_k", "group_m", "xcd_chunk")}
    arguments |= {"a_ptr": a, "b_ptr": b, "c_ptr": out, "m": m, "n": n, "k": k, "num_xcds": call.machine.num_xcds}
    arguments |= {"stride_ab": a.stride(0), "stride_am": a.stride(1), "stride_bb": b.stride(0)}
    arguments |= {"stride_b": b.stride(2) if is_along else b.stride(1), "stride_cb": out.stride(0)}
    arguments |= {"stride_cm": out.stride(1), "alpha": float(call.epilogue.alpha)}
    arguments |= {"has_alpha": call.epilogue.alpha != 1.0, "odd_steps": k // config["tile_k"] % 2 == 1}
    dtype = dtype_of(a)
    arguments |= layout_arguments(gpu, dtype, config, is_along=is_along)
    arguments["sums_in"] = "a" if fills_accumulators(gpu, config) else None
    options = {"num_warps": config["num_warps"]}
    if gpu.arch.target == "gfx942":
        return TritonLaunch(gemm_cdna3_kernel, (tiles, batch), arguments, options)
    arguments |= {"b_turned": is_along, "is_scaled": is_scaled(gpu, dtype), "operand": SCALED_TYPE}
    arguments |= {"alternates": config["num_warps"] == max(WAVES)}
    return TritonLaunch(gemm_cdna4_kernel, (tiles, batch), arguments, options)


def dtype_of(tensor: Any) -> str:
    """Our name of a tensor's dtype."""
    if tensor.element_size() == 1:
        return "fp8"
    return "bf16" if str(tensor.dtype).endswith("bfloat16") else "fp16"


def layout_arguments(gpu: GpuModel, dtype: str, config: Mapping[str, int], *, is_along: bool) -> dict[str, Any]:
    """The layouts as Gluon takes them: of the sums, of slices in LDS and on their way there."""
    from triton.experimental.gluon.language.amd import AMDMFMALayout

    k_width, instruction_k = lane_elements(gpu, dtype)
    version, num_warps = 4 if gpu.arch.target == "gfx950" else 3, config["num_warps"]
    waves = list(WAVES[num_warps])
    # Transposed sums: a lane has four columns of a row, which it stores together.
    mfma = AMDMFMALayout(version, [SIDE, SIDE, instruction_k], transposed=True, warps_per_cta=waves)
    a = solved_layout(gpu, config["tile_m"] // 2, config["tile_k"], dtype)
    b = solved_layout(gpu, config["tile_n"] // 2, config["tile_k"], dtype, is_k_major=is_along)
    arguments: dict[str, Any] = {"mfma": mfma, "k_width": k_width}
    for name, layout in (("a", a), ("b", b)):
        arguments[f"place_{name}"] = shared_linear(offset_bases(layout))
        arguments[f"load_{name}"] = loading(layout, num_warps)
        if gpu.arch.target == "gfx950":
            arguments[f"plain_{name}"] = shared_linear(offset_bases(SharedLayout(layout.tile)))
            arguments[f"flips_{name}"] = element_flips(layout)
    return arguments


def shared_linear(bases: list[list[int]]) -> Any:
    """A layout of LDS by what lies at places 2^i."""
    from triton.experimental.gluon.language import SharedLinearLayout

    return SharedLinearLayout(bases)


def loading(layout: SharedLayout, num_warps: int) -> Any:
    """Half a slice on its way into LDS: lanes take 16 bytes in the order of rows, waves follow each other."""
    from triton.experimental.gluon.language import DistributedLinearLayout

    bases = offset_bases(SharedLayout(layout.tile))
    own = (16 // layout.tile.element_bytes).bit_length() - 1
    lanes, warps = LANES.bit_length() - 1, num_warps.bit_length() - 1
    first, second = own + lanes, own + lanes + warps
    shape = [layout.tile.rows, layout.tile.columns]
    missing = max(0, second - len(bases))
    warp_bases = bases[first:second] + [[0, 0]] * missing
    return DistributedLinearLayout(bases[:own] + bases[second:], bases[own:first], warp_bases, [], shape)
