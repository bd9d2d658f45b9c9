"""constrint: which kernel configurations fit a named GPU, which is best, and why - with no device present.

The main names of the packages below are offered here too, `from constrint import Problem, enumerate_space, load_gpu,
rank`. `__init__.pyi` lists them; each is imported at its first use, so that `import constrint` stays light.
"""

from importlib import import_module

from constrint.lazy import from_stub

__version__ = "0.1.0"

_load, __dir__, __all__ = from_stub(globals())


def __getattr__(name: str) -> object:
    if name in ("nn", "patch", "solve"):
        # Packages; the last two can be called like their functions of the same names.
        return import_module(f"constrint.{name}")
    return _load(name)
