"""What several test files share; imported as `tests.support.<module>` (pytest's `pythonpath` in pyproject.toml)."""
