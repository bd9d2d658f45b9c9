"""Compile, check and measure any kernel; `search` says what is tried, `engine` where, `store` keeps the records."""

from constrint.select.candidate import CompiledKernel
from constrint.tune.assembly import assembly_of, count_instructions
from constrint.tune.compile import BuiltKernel, TritonSource, build_triton, compile_triton
from constrint.tune.pool import compile_many
from constrint.tune.signature import triton_source
from constrint.tune.trial import Outcome, Trial

__all__ = [
    "BuiltKernel",
    "CompiledKernel",
    "Outcome",
    "Trial",
    "TritonSource",
    "assembly_of",
    "build_triton",
    "compile_many",
    "compile_triton",
    "count_instructions",
    "triton_source",
]
