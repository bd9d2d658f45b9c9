"""Attacks on the package as programs: `python -m benchmarks.attacks.NAME --count N --seed S`.

Each draws cases by a seed, prints a summary line, and exits with 1 where it finds a fault. A few run in the suite.
"""
