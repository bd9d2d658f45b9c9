"""Sweeps of a star stencil over grids of two or three axes."""
