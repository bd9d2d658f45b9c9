"""Matrix-vector products by torch's own operators."""
