"""What there is to know about GPUs: `gpus`, `gpu`, `limits`, `occupancy`."""
