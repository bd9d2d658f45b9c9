"""Completion in a shell: what it asks, and the words that an option or an argument may have."""
