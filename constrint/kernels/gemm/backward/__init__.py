"""The backward pass of a product: one pointwise pass over the incoming gradient, and the products that read it."""
