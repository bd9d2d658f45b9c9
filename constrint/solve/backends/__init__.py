"""Solvers behind one small protocol: the native engine, and independent ones to cross-check it."""
