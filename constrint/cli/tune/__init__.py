"""`constrint tune`: measure what can win; goals, progress and the report."""

from constrint.cli.tune.command import tune

__all__ = ["tune"]
