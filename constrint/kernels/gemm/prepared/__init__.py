"""The CUDA GEMM with operands that are copied along K first: tf32, which wgmma takes along K alone."""
