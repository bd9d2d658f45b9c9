"""Random launches of every product kind, compared with fp64: `python -m benchmarks.launches`."""
