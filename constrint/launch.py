"""Cheap repeated launches for anyone's kernel: `prepare` for Triton's, `prepare_cuda` for CUDA's and HIP's.

Needs torch, and triton for kernels of Triton's.
"""

from constrint.kernels.launch.plan.prepared import PreparedCuda, PreparedLaunch, prepare, prepare_cuda

__all__ = ["PreparedCuda", "PreparedLaunch", "prepare", "prepare_cuda"]
