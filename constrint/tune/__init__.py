"""Compile, check and measure any kernel; `search` says what is tried, `engine` where, `store` keeps the records."""

from constrint.select.compiled import CompiledKernel
from constrint.tune.compile import TritonSource, compile_triton
from constrint.tune.pool import compile_many
from constrint.tune.trial import Outcome, Trial

__all__ = ["CompiledKernel", "Outcome", "Trial", "TritonSource", "compile_many", "compile_triton"]
