"""Measures on this machine's GPU what no source states: `session.py` from detection to the written file.

`bench.py` runs torch's operators and the kernel of `kernel.py`.
"""
