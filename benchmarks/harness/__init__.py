"""What the benchmarks share: tables and their environment, peers, measured spaces, workloads."""
