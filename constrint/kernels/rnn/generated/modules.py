"""Modules of generated text in Triton: Triton reads a function's source, so the text is one that Python can show."""

from __future__ import annotations

import linecache
import sys
from hashlib import sha256
from types import ModuleType

#: What a step may call: the module, and the first lines of every text.
FUNCTIONS = "constrint.kernels.rnn.generated.kernel_functions"
HEAD = f"""import triton
import triton.language as tl

from {FUNCTIONS} import log1p, log_sigmoid, rounded_down, sigmoid, tanh

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
