"""Cells of several stages a step on a GPU: a graph of products and of one generated kernel per stage."""
