"""Layouts of tiles in shared memory without bank conflicts, as solutions of integer problems."""

from constrint.select.layouts.layout import SharedLayout, parse_layout
from constrint.select.layouts.solve import LayoutSolution, solve_layout, xor_layout

__all__ = ["LayoutSolution", "SharedLayout", "parse_layout", "solve_layout", "xor_layout"]
