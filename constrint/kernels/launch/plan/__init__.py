"""Launch plans: what a call of a known signature does, without choosing, compiling or asking Triton again."""
