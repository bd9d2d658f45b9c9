"""Programs that attack this package: `python -m benchmarks.attacks.NAME --count N --seed S`; a find is exit code 1."""
