"""The factored space of solutions: what it is made of, and every question that it answers without listing it."""
