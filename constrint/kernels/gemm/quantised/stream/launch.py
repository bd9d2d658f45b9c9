"""The launch of the streaming quantised GEMM. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.quantised.launch import FOLDERS, operand_macros, stated
from constrint.kernels.gemm.quantised.shape import tiles_of
from constrint.kernels.gemm.quantised.stream.shape import (
    PARAMETERS,
    VARIABLES,
    slots_of,
    smem_bytes,
    threads_of,
    x_rows_of,
)
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight


def stream_launches(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int],
    bias: Tensor | None = None,
) -> list[CudaLaunch]:  # fmt: skip
    """State the one launch of out (M, N) = x (M, K) @ W^T + bias; rows of x are contiguous."""
    m, n, split = len(x), weight.n, config["split_k"]
    tiles = tiles_of(n)
    blocks = min(tiles, slots_of(gpu, VARIABLES["split_k"]).value(config))
    facts = operand_macros(x, weight) | {"X_ROWS": x_rows_of(m)}
    facts |= {"ONE_PASS": config["rows"] * config["row_warps"] >= -(-tiles // blocks)}
    facts |= {name.upper(): config[name] for name in PARAMETERS}
    smem = smem_bytes(gpu, VARIABLES, m, n, weight.bits, weight.group).value(config)
    return stated(gpu, x, weight, out, bias, _source_of, facts, (blocks, split, threads_of(config), smem))


@lru_cache(maxsize=256)
def _source_of(facts: tuple[tuple[str, int], ...], ends: CompiledEpilogue) -> CudaSource:
    text = (FOLDERS[0] / "stream.cu").read_text(encoding="utf-8")
    macros = dict(facts) | ends.macros
    return CudaSource(
        text, "quantised_gemm_stream", macros, ("-std=c++17",), FOLDERS, "quantised_stream.cu", is_settled=True
    )
