"""How a command runs: its limits, its signals, its progress, and what it says when it is stopped."""
