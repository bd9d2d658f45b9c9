"""How good tuning is, beside other tools, and how fast."""
