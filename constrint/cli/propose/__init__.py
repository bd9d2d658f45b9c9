"""`constrint propose`: a language model, or built-in rules, suggest; constraints, compilers and measurements decide."""

from __future__ import annotations

from constrint.cli.propose.command import propose

__all__ = ["propose"]
