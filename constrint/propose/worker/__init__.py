"""The process of a candidate: the only part of `propose` that executes source of others."""
