"""How good tuning is, and how fast."""
