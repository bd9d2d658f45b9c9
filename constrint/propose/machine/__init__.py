"""Judges compiled kernels by what they hold: PTX, SASS and AMD's assembly, by lists of what a kernel needs."""


def words(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())
