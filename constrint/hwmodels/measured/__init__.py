"""Quantities that no source states of a GPU and a device can tell, and a model of the user's own with them.

`quantities.py` measures through a bench; `constrint.kernels.measuring` has the one for this machine.
"""
