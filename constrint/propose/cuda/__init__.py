"""Candidates in CUDA C++: text, and launches that are data; no Python of theirs runs anywhere."""
