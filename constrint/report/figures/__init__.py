"""One file for each figure of a page; each registers its function with `constrint.report.drawing`."""
