"""The recurrence fused over time in Triton kernels: a program keeps its weights for all steps."""
