"""One sweep in a launch, in Triton: for every GPU."""
