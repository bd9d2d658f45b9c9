"""Spaces and problems: `count`, `sample`, `explain`, `why-not`, and lists of solutions."""
