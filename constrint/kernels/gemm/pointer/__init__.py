"""The pointer kernel: tiles come through pointers, on any GPU that Triton compiles for."""
