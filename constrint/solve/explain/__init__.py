"""Explanations: conflicts of a problem without solutions, relaxations, invalid configurations, effects of rules."""
