"""Spaces of other tuners: parameters whose restrictions are Python expressions, read and never evaluated."""
