"""Why a launch goes the long way."""


class NotPlannedError(Exception):
    """The launch has no plan: it is left to Triton's launcher."""
