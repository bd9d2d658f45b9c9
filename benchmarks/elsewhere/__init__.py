"""GEMM times and configurations that others published, held against the models: `python -m benchmarks.elsewhere`."""
