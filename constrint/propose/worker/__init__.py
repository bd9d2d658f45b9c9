"""What runs in the process of a candidate: the only part of `propose` that executes what a proposer wrote."""
