"""The launch of the quantised GEMM. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.quantised.shape import READ, WARP, columns_of, padded, smem_bytes, tiles_of
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight

#: Folders of the sources: its own, and that of the epilogue which the kernels in CUDA C++ share.
FOLDERS = (Path(__file__).with_name("source"), Path(__file__).parents[1] / "cuda" / "source")
#: Four bits of each half of a word.
MASK = 0x000F000F
#: Whether a kernel is compiled for the length of a row, so that it knows the distances of tiles; where that spills, the
#: one that reads the length is used.
KNOWS_ROWS = True
UNKNOWN_ROWS = {"READS": 0, "GROUPS": 0, "IS_WHOLE": 0}
#: Parameters that the kernel is compiled for.
PARAMETERS = ("rows", "tiles", "warps", "resident", "split_k", "stages", "x_turns", "of_sums")
#: Vectors of X have 16 bytes.
VECTOR_BYTES = 16


def quantised_launches(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int],
    bias: Tensor | None = None,
) -> list[CudaLaunch]:  # fmt: skip
    """State the one launch of out (M, N) = x (M, K) @ W^T + bias; rows of x are contiguous."""
    (m, k), n, bits, split = x.shape, weight.n, weight.bits, config["split_k"]
    _, depth = padded(n, k, bits)
    blocks = min(tiles_of(n), max(gpu.device.sm_count * config["resident"] // split, 1))
    facts = {"IS_WHOLE": has_vectors(x) and k == depth, **of_rows(weight, depth)} if KNOWS_ROWS else UNKNOWN_ROWS
    facts = operand_macros(x, weight) | facts | {name.upper(): config[name] for name in PARAMETERS}
    smem = int(smem_bytes(config, m, bits))
    return stated(gpu, x, weight, out, bias, _source_of, facts, (blocks, split, WARP * config["warps"], smem))


def has_vectors(x: Tensor) -> bool:
    """Whether every row of X begins with a whole vector."""
    return (len(x) == 1 or x.stride(0) * 2 % VECTOR_BYTES == 0) and x.data_ptr() % VECTOR_BYTES == 0


def of_rows(weight: QuantisedWeight, depth: int) -> dict[str, int]:
    """Reads of a row of W, padded to `depth`, and groups of scales."""
    return {"READS": depth // READ[weight.bits], "GROUPS": weight.scales.shape[1]}


def operand_macros(x: Tensor, weight: QuantisedWeight) -> dict[str, int]:
    """Macros of every kernel, which follow from its operands."""
    return {
        "BITS": weight.bits,
        "COLUMNS": columns_of(len(x)),
        "GROUP": weight.group,
        "IS_BF16": x.dtype == torch.bfloat16,
    }


def stated(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, bias: Tensor | None,
    source_of: Callable[[tuple[tuple[str, int], ...], CompiledEpilogue], CudaSource], facts: Mapping[str, int],
    sizes: tuple[int, int, int, int],
) -> list[CudaLaunch]:  # fmt: skip
    """The one launch of a kernel.

    Args:
        gpu: The hardware model.
        x, weight, out, bias: The operands and the output.
        source_of: Gives the source for macros and an epilogue.
        facts: The macros.
        sizes: Clusters, blocks of each, threads of a block, and bytes of its shared memory.
    """
    (m, k), n, (clusters, split, threads, smem) = x.shape, weight.n, sizes
    added = as_added(bias)
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(added))
    rows = of_rows(weight, padded(n, k, weight.bits)[1]).values()
    return [
        CudaLaunch(
            gpu=gpu,
            source=source_of(tuple((name, int(fact)) for name, fact in facts.items()), ends),
            grid=(clusters * split,),
            block=(threads,),
            arguments=(
                weight.packed,
                weight.scales,
                x,
                out,
                added,
                *map(np.int32, (m, n, k, tiles_of(n), *rows, has_vectors(x))),
                np.uint32(MASK),
                np.int64(x.stride(0)),
                np.int64(out.stride(0)),
            ),
            smem_bytes=smem,
            cluster=split,
        )
    ]


@lru_cache(maxsize=256)
def _source_of(facts: tuple[tuple[str, int], ...], ends: CompiledEpilogue) -> CudaSource:
    macros = dict(facts) | ends.macros
    text = (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")
    sparing = UNKNOWN_ROWS if macros["READS"] else {}
    return CudaSource(
        text, "quantised_gemm", macros, ("-std=c++17",), FOLDERS, "quantised.cu", is_settled=True, sparing=sparing
    )
