"""Forward recurrences of many sequences: each block multiplies 64 of them at once by Hopper's `wgmma`."""
