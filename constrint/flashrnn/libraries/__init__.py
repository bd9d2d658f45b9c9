"""Layers of torch in the place of ours: on the CPU, by cuDNN, and under torch.jit.script."""
