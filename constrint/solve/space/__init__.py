"""The factored space of solutions: its parts, and queries that it answers without listing."""
