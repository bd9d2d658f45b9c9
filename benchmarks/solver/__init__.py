"""The solver beside its peers, and how long a user waits for it."""
