"""Compiling kernels and reading what they take; measuring and recording come later."""

from constrint.tune.compile import CompiledKernel, TritonSource, compile_triton

__all__ = ["CompiledKernel", "TritonSource", "compile_triton"]
