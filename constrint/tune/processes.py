"""The fork server of all processes that load kernels, and their end with the process that requested them."""

from __future__ import annotations

import multiprocessing
import os
import threading

from constrint.tune.keeper import die_with_parent

#: Modules of the fork server, imported once.
PRELOAD = [
    "torch",
    "triton",
    "constrint.tune.pool",
    "constrint.tune.engine.device",
    "constrint.tune.search.maker",
    "constrint.tune.search.model",
    "constrint.kernels.registry",
]
#: A further module of the fork server, where kernels are compiled for a GPU and run on it.
WARM = "constrint.tune.engine.warm"


def end_with_parent() -> None:
    """End this process with the one that requested it, even while a kernel hangs."""
    # The fork server, this process's parent, ends with its own parent.
    die_with_parent()

    def watch() -> None:
        # The fork server may have ended before the call above.
        asking = multiprocessing.parent_process()
        if asking is not None:
            asking.join()
            os._exit(1)

    threading.Thread(target=watch, name="constrint-parent", daemon=True).start()
