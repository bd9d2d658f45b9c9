"""One step of a cell: two products and one pointwise kernel in one launch plan, forward and backward."""
