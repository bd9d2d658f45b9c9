"""The GEMM whose operands are rewritten first: fp32 as six products of bf16, tf32 with both operands along K."""
