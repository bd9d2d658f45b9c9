"""What is done when a configuration does not fit the device after all: the next choice runs, with a warning.

The rules hold for the compiler versions they are checked with; another one may take more shared memory or registers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from constrint.select.first_choice import Choice, Refusal


def launch_what_fits(
    choice: Choice, launch: Callable[[Choice], None], refuse: Callable[[Choice, Refusal], Choice]
) -> Choice:
    """Launch a choice; where the device refuses it, the next ones, until one runs.

    Args:
        choice: The first choice.
        launch: Launches a choice; raises Triton's OutOfResources before anything is enqueued.
        refuse: Remembers the refusal and gives the next choice; raises when there is none.

    Returns:
        The choice that was launched.
    """
    import triton
    from triton.runtime.errors import OutOfResources

    while True:
        try:
            launch(choice)
        except OutOfResources as error:
            refusal = Refusal(dict(choice.config), str(error.name), int(error.required), int(error.limit))
            following = refuse(choice, refusal)
            where = choice.gpu.name if choice.gpu is not None else "the device"
            warnings.warn(
                f"{choice.kernel} {choice.workload or ''}: {dict(choice.config)} does not fit {where} after all: it "
                f"takes {error.required} of {error.name}, the limit is {error.limit}. From now on {following.kernel} "
                f"{dict(following.config)} is used. Please report this with Triton's version ({triton.__version__}).",
                RuntimeWarning,
                stacklevel=4,
            )
            choice = following
        else:
            return choice
