"""Modules of generated text in Triton: Triton reads a function's source, so the text is one that Python can show."""

from __future__ import annotations

import linecache
import sys
from hashlib import sha256
from types import ModuleType

#: First lines of every text: what a step may call.
HEAD = """import triton
import triton.language as tl

from constrint.kernels.rnn.generated.kernel_functions import log1p, rounded_down
from constrint.kernels.rnn.kernel_cells import log_sigmoid, sigmoid, tanh

"""


def module_of_text(kind: str, text: str) -> ModuleType:
    """The module of a text, made once in a process.

    Args:
        kind: What the text holds, a part of the module's name: "cell".
        text: It. It is run: pass only what was written from a checked tape of known operations.
    """
    digest = sha256(text.encode()).hexdigest()[:16]
    name = f"constrint_{kind}_{digest}"
    module = sys.modules.get(name)
    if module is None:
        file = f"<constrint {kind} {digest}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        module = ModuleType(name)
        module.__file__ = file
        sys.modules[name] = module
        # Nothing of the caller's stands in the text.
        exec(compile(text, file, "exec"), vars(module))  # noqa: S102
    return module
