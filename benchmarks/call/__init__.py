"""Public calls as a user makes them from plain Python."""
