"""What the kernels that load through the TMA unit share: which operands it can load, copies of the others, cost."""
