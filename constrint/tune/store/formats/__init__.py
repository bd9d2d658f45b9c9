"""What other tools read and write: one file for each format, listed in `registry`.

A file that is imported is data: parsed, validated and limited in size, never executed or unpickled.
"""
