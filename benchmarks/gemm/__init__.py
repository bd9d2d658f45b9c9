"""The matrix product: beside its peers, checked on a GPU, and its caches simulated."""
