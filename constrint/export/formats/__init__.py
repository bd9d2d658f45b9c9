"""What files look like: one file for each format, listed in `constrint.export.registry`."""
