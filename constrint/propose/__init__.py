"""Proposals: a language model, or rules, may suggest; constraints, compilers and measurements decide."""
