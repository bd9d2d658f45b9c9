"""How results are printed: tables that fit the terminal, plain text in a pipe, or another format on request.

A command takes an `output: Output`, which the decorator `printing` makes of its options, and shows a `Page`: a
`Table`, the JSON document, and what is said above and below.
"""

from __future__ import annotations

from constrint.cli.output.options import Output, printing
from constrint.cli.output.page import Page
from constrint.cli.output.table import EXTRA, STAYS, Cell, Column, Table
from constrint.cli.output.terminal import command_text, print_json, printable, say, terminal_width, wrap

__all__ = [
    "EXTRA", "STAYS", "Cell", "Column", "Output", "Page", "Table",
    "command_text", "print_json", "printable", "printing", "say", "terminal_width", "wrap",
]  # fmt: skip
