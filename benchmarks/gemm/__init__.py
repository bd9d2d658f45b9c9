"""The matrix product: beside its peers, and its caches simulated."""
