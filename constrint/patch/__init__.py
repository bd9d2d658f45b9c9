"""Puts the kernels of this package into a model of PyTorch, in place, and says where and why not.

    report = constrint.patch(model)
    print(report)
    report.undo()

The package can be called: `constrint.patch(model)` is `constrint.patch.patch(model)`. Importing it is light; torch is
loaded at the first call.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.patch.apply import patch
    from constrint.patch.report import PatchReport

__all__ = ["PatchReport", "patch"]

__getattr__ = lazily(__name__, {"apply": ("patch",), "report": ("PatchReport",)})


def __dir__() -> list[str]:
    return list(__all__)


class _Patching(ModuleType):
    """A package that is called like the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from constrint.patch.apply import patch

        return patch(*args, **kwargs)


sys.modules[__name__].__class__ = _Patching
