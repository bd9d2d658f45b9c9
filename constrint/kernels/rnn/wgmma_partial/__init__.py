"""Backward recurrences of many sequences whose blocks exchange partial sums instead of gates' gradients."""
