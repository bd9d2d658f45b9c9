"""A tutorial's matrix product, under its own names, and lists of configurations for it."""
