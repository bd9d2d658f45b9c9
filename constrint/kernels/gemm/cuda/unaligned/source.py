"""The source of a configuration, as it is compiled: the consumers of the CUDA GEMM, and a producer that gathers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from constrint.kernels.gemm.cuda.source import FOLDER, Operands, joined
from constrint.kernels.gemm.cuda.source import source_of as source_of_others
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered
from constrint.kernels.gemm.epilogue.ends import Ends
from constrint.kernels.launch.cuda.nvrtc import CudaSource

OWN = Path(__file__).with_name("source")
#: Where the kernel begins in the CUDA GEMM's source: what is before it, all but the producer's role, is shared.
KERNEL = 'extern "C" __global__'


def source_of(
    config: Mapping[str, int], operands: Operands, gathered: Gathered, ends: Ends, *, splits: bool
) -> CudaSource:
    """The source of a configuration; how tiles are dealt out is told at the launch, but for whether any is split."""
    shared = source_of_others(config, operands, ends, splits=splits)
    rows, columns = reversed(gathered) if config["turned"] else gathered
    macros = {"ROWS_GATHERED": int(rows), "COLUMNS_GATHERED": int(columns), "RAW_STAGES": int(config["raw_stages"])}
    return _joined(shared.text, tuple(sorted({**shared.macros, **macros}.items())))


@lru_cache(maxsize=1024)
def _joined(text: str, macros: tuple[tuple[str, int], ...]) -> CudaSource:
    roles, kernel, _ = text.partition(KERNEL)
    if not kernel or text.count(KERNEL) != 1:
        raise AssertionError(f"{FOLDER / 'kernel.cu'} has one kernel, after the roles that are shared")
    own = (OWN / "kernel.cu").read_text(encoding="utf-8")
    return joined(roles + own, dict(macros), (OWN, FOLDER), "gemm_unaligned.cu")
