"""Benchmarks of products with sparse matrices."""
