"""The gradient of a layer's weights in several heads, from the gradients of its slots: one product for all gates."""
