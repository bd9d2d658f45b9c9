"""Names of the rows of a sweep."""

TORCH_NN, PROJECTION, NXAI = "torch.nn", "projection", "nxai"
