"""Whole layers by cuDNN, through the operator that `torch.nn` calls."""
