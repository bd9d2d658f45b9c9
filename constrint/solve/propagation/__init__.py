"""Narrowing of domains without trying combinations; sound, not complete."""
