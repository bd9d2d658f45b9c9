"""Remake every shipped table of measurements for the GPU of this machine."""
