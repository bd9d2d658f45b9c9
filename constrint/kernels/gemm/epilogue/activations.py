"""The table of activations: names, numbers in CUDA C++, and instructions of an element. No torch.

An activation joins by an entry here, entries in `reference.py` (the function and its derivative in torch), and a branch
of `activate` in `kernel.py` (Triton) and in `../cuda/source/epilogue.cuh`. `tests/kernels/gemm/test_activations.py`
compares all of them over all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """An activation and what it costs for results of 16 bits.

    Args:
        number: Its number in `epilogue.cuh`.
        meaning: The function of x, as a user reads it.
        instructions: Instructions of an element, those of the unit for special functions among them.
        special: Instructions of that unit.
        wide_instructions, wide_special: The same for results of 32 bits, which are computed to their accuracy; read off
            the functions of CUDA's library, not counted.
    """

    number: int
    meaning: str
    instructions: int
    special: int
    wide_instructions: int
    wide_special: int


#: All activations by name. Instructions are those of the machine code for sm_90a and bf16, counted by
#: `python -m benchmarks.gemm.cuda.instructions` of commit 0c61f683; 0 where the conversion to 16 bits does it besides.
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(1, "max(x, 0)", 0, 0, 1, 0),
    "gelu": Activation(2, "x / 2 * (1 + erf(x / sqrt(2)))", 9, 1, 27, 1),
    "silu": Activation(3, "x / (1 + exp(-x))", 5, 2, 14, 2),
    "gelu_tanh": Activation(4, "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))", 7, 2, 26, 2),
    "sigmoid": Activation(5, "1 / (1 + exp(-x))", 4, 2, 13, 2),
    "quick_gelu": Activation(6, "x / (1 + exp(-1.702 * x))", 5, 2, 15, 2),
    "relu2": Activation(7, "max(x, 0)^2", 2, 0, 2, 0),
    "tanh": Activation(8, "tanh(x)", 1, 1, 22, 2),
}
#: Their numbers in `epilogue.cuh`.
NUMBERS: dict[str | None, int] = {None: 0} | {name: each.number for name, each in ACTIVATIONS.items()}
