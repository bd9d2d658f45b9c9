"""Carry measured tables over to device code whose text has changed and whose machine code has not."""
