"""Programs that measure, one per question; run them from the root of the repository as `python -m benchmarks.NAME`."""
