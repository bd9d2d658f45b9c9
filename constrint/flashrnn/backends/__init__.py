"""Ways to run a recurrence: `reference`, `alternating`, `triton`; a CUDA C++ one would register here too."""
