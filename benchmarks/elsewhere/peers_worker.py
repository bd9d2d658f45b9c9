"""Ask one of the peers, in an environment that has it: reads jobs as JSON from stdin, writes answers to stdout.

Run by `benchmarks.elsewhere.peers` as a file; it imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import product
from typing import Any

#: A product: sizes, a type and the facts of its GPU; and the answer, a tile and a time.
Job = Mapping[str, Any]
Answer = dict[str, Any]
#: Sides and depths of the tiles that Origami ranks.
SIDES, DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (16, 32, 64, 128, 256)
#: Cache modifiers of both operands: it ranks long products with few rows with a non-temporal operand alone.
HINTS = ((0, 0), (4, 0), (0, 4))
#: Names of the types in both packages.
ORIGAMI_TYPES = {"bf16": "bf16", "fp16": "f16", "fp8": "f8", "int8": "i8"}
NVIDIA_TYPES = {"bf16": "TST", "fp16": "HSH"}
NVIDIA_GPUS = {"a100": "A100_SXM_80GB", "h100": "H100_SXM", "h200": "H200_SXM", "b200": "B200", "l40s": "L40S"}


def origami() -> Callable[[Job], Answer]:
    """A function that asks Origami for the tile of the least latency."""
    o: Any = import_module("origami")

    def ask(job: Job) -> Answer:
        gpu = job["facts"]
        hardware = o.get_hardware_for_arch(
            arch=getattr(o.architecture_t, gpu["target"]),
            N_CU=gpu["cus"],
            lds_capacity=gpu["lds_bytes"],
            L2_capacity=gpu["l2_bytes"],
            compute_clock_khz=gpu["clock_hz"] // 1000,
        )
        of_operands = o.string_to_datatype(ORIGAMI_TYPES[job["dtype"]])
        of_result = o.string_to_datatype("i32" if job["dtype"] == "int8" else ORIGAMI_TYPES[job["result"]])
        problem = o.problem_t()
        problem.size, problem.batch = o.dim3_t(job["m"], job["n"], job["k"]), 1
        # Its matrices lie by columns: C^T = B^T A^T, whose first operand has K along its columns.
        problem.a_transpose, problem.b_transpose = o.transpose_t.T, o.transpose_t.N
        problem.a_dtype = problem.b_dtype = problem.mi_dtype = of_operands
        problem.c_dtype = problem.d_dtype = of_result
        instructions = hardware.get_valid_matrix_instructions(of_operands)
        element = o.datatype_to_bits(of_operands) // 8
        configs = []
        for m, n, k, (hint_a, hint_b), instruction in product(SIDES, SIDES, DEPTHS, HINTS, instructions):
            divides = not (m % instruction.m or n % instruction.n or k % instruction.k)
            if divides and 2 * (m + n) * k * element <= gpu["lds_bytes"]:
                config = o.config_t()
                config.mt, config.mi, config.occupancy = o.dim3_t(m, n, k), instruction, 1
                config.cache_hints_a, config.cache_hints_b = hint_a, hint_b
                configs.append(config)
        first = o.rank_configs(problem, hardware, configs)[0]
        tile = first.config.mt
        return {"us": first.latency / (1e3 * hardware.compute_clock_ghz), "tile": [tile.m, tile.n, tile.k]}

    return ask


def nvidia() -> Callable[[Job], Answer]:
    """A function that asks nvMatmulHeuristics, for Triton, for its first configuration."""
    api: Any = import_module("nvMatmulHeuristics")

    made: dict[str, Any] = {}

    def ask(job: Job) -> Answer:
        gpu = job["gpu"]
        if gpu not in made:
            model = getattr(api.NvMatmulHeuristicsNvidiaGpu, NVIDIA_GPUS[gpu])
            made[gpu] = api.NvMatmulHeuristicsInterfaceEx(backend=api.NvMatmulHeuristicsTarget.TRITON, gpu=model)
        layouts = api.NvMatmulHeuristicsMatmulLayout
        layout = layouts.NT_ROW_MAJOR if job["transpose_b"] else layouts.NN_ROW_MAJOR
        problem = made[gpu].makeNvMatmulHeuristicsProblem(job["m"], job["n"], job["k"], layout)
        first = made[gpu].get(problem, 1, NVIDIA_TYPES[job["dtype"]])[0]
        kernel = first["kernel"]
        tile = [kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k]
        return {"us": 1e6 * first["runtime"], "tile": tile}

    return ask


def main() -> None:
    """Answer every job; one that the peer does not take has a text in place of a time."""
    ask = {"origami": origami, "nvidia": nvidia}[sys.argv[1]]()
    answers: list[Answer] = []
    for job in json.load(sys.stdin):
        try:
            answers.append(ask(job))
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
            answers.append({"error": f"{type(error).__name__}: {error}"})
    # Packages print lines of their own: the answer is the last one.
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
