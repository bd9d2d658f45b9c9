"""The text language: how it is read and how problems are written in it."""
