"""The quantised GEMM whose weights stream through shared memory as bulk copies: Hopper and later."""
