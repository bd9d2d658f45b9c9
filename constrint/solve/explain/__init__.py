"""Reasons: why a problem has no solution, what would change that, why a config is invalid, what each rule removes."""
