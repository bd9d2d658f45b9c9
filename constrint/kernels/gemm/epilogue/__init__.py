"""Device code that the GEMM kernels share: the order of tiles, the end of a tile, sums of split tiles."""
