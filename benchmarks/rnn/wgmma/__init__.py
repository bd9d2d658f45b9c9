"""Check and time the forward kernel for many sequences (`constrint/kernels/rnn/wgmma/`)."""
