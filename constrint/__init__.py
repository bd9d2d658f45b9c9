"""constrint: which kernel configurations fit a named GPU, which is best, and why - with no device present."""

__version__ = "0.1.0"
