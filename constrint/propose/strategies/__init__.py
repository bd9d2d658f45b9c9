"""Ways to make kernels fast, as constraints: macro actions, strategies, and a population of them."""
