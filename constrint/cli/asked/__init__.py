"""What a command was asked: options, GPU, kernel or problem, rules of the user."""
