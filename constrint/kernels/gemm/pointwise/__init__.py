"""The epilogue of a product as a kernel of its own: 32-bit sums in, the result out, one pass."""
