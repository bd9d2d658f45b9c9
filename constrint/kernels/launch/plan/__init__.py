"""Launch plans: calls of a planned signature run without another choice, compilation or inspection by Triton."""
