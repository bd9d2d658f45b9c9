"""What several test files share; imported as `support.<module>` (pytest's `pythonpath` in pyproject.toml)."""
