"""Shared by the benchmarks: tables and their environment, peers, measured spaces, workloads."""
