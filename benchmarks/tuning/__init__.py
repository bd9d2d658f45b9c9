"""Speed of the tuner."""
