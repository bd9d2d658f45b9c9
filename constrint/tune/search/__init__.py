"""Which configuration to try next: the model's order, neighbours in the solved space, and other tools' samplers."""
