"""`constrint compile`: anyone's Triton kernel, compiled for named GPUs that need not be here."""

from constrint.cli.compile.command import compile

__all__ = ["compile"]
