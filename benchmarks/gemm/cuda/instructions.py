"""Instructions that gemm.cuda takes for each result with an end, beyond those of a plain one, from its machine code.

python -m benchmarks.gemm.cuda.instructions

Compiles one tile with and without ends for sm_90a and counts what nvdisasm, which comes with Triton, prints; needs no
GPU. `constrint/kernels/gemm/epilogue/activations.py` has the numbers.
"""

from __future__ import annotations

import re
from collections import Counter

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.source import OperandLayout, source_of
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.launch.cuda import compile_cuda
from constrint.tune.compile import nvidia_tool

#: A tile of two consumers, and the results of a thread.
CONFIG = {"tile_m": 128, "tile_n": 256, "num_stages": 4, "consumers": 2, "by_columns": 1, "in_turns": 0}
CONFIG |= {"cluster_m": 2, "cluster_n": 1, "turned": 0}
RESULTS = 128
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def instructions(end: CompiledEpilogue) -> Counter[str]:
    """Instructions of the whole kernel by name."""
    layout = OperandLayout(end.output, True, True)
    binary = compile_cuda(load_gpu("h200"), source_of(CONFIG, layout, end, splits=False))
    text = nvidia_tool("nvdisasm", binary.cubin, "-c")
    return Counter(found.group(1) for line in text.splitlines() if (found := INSTRUCTION.match(line)))


def per_result(end: CompiledEpilogue, plain: CompiledEpilogue) -> tuple[float, float]:
    """Instructions, and those of the unit for special functions, that an end adds to each result of a thread."""
    counted, beside = instructions(end), instructions(plain)
    special = sum(number for name, number in counted.items() if name.startswith("MUFU"))
    return (counted.total() - beside.total()) / RESULTS, special / RESULTS


def main() -> None:
    """Print a line for each end and type of result."""
    for output in ("bf16", "fp16"):
        plain = CompiledEpilogue(output, in_boxes=True, buffers=2)
        ends = {"bias": CompiledEpilogue(output, output, in_boxes=True, buffers=2)}
        ends["source"] = CompiledEpilogue(output, "", output, in_boxes=True, buffers=2)
        ends |= {name: CompiledEpilogue(output, "", "", name, True, 2) for name in ACTIVATIONS}
        for name, end in ends.items():
            print("{} {}: {:.2f} instructions, {:.2f} special ones".format(output, name, *per_result(end, plain)))


if __name__ == "__main__":
    main()
