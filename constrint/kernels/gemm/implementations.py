"""The names and configurations that `matmul` takes as `kernel` and `config`. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from constrint.errors import UnknownNameError, UsageError
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS as ACTIVATIONS
from constrint.kernels.gemm.spec import gemm_specs

AUTO, KERNELS, LIBRARY = "auto", "kernels", "library"
#: The library's product, then a pointwise kernel for the epilogue.
COMPOSED = "library+pointwise"
#: One kernel for any number of rows, for `small_linear`; no caller of `matmul` may name it.
STEADY = "steady"
#: Reason why the library is no candidate, by the `kernel` that the caller named.
LIBRARY_EXCLUDED = {
    KERNELS: "the caller asked for kernels of this package",
    STEADY: "one kernel has to serve any number of rows at little cost to the host",
}


@lru_cache(maxsize=1)
def kernel_names() -> tuple[str, ...]:
    """Names of the kernels of this package, `pointer`: a caller may name one of them."""
    return tuple(spec.name for spec in gemm_specs() if spec.has_tiles)


def check_kernel(name: str) -> None:
    """Check the `kernel` of a call.

    Raises:
        UnknownNameError: For an unknown name; lists the known ones.
    """
    # torch.compile does not look into the cached list of names.
    programs = (AUTO, KERNELS, LIBRARY, COMPOSED)
    if name not in (*programs, STEADY) and name not in kernel_names():
        names = (*programs, *kernel_names())
        raise UnknownNameError("kernel", str(name), names, f"`kernel` takes {', '.join(names)}.")


def kernel_of_gradients(name: str) -> str:
    """The `kernel` of a product's gradients: the library may compute the product, but not its gradients."""
    return KERNELS if name == KERNELS else AUTO


def config_of(text: str) -> dict[str, int] | None:
    """The configuration of a text, `tile_m=64,tile_n=32`; None for an empty one."""
    pairs = (pair.partition("=") for pair in text.split(",")) if text else ()
    return {name: int(value) for name, _, value in pairs} or None


def config_text(config: Mapping[str, int] | None) -> str:
    """A configuration as `config_of` reads it.

    Raises:
        UsageError: When it is no mapping, or a value is no whole number.
    """
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(f"config takes whole numbers by parameter, got {config!r}.")
    for name, value in (config or {}).items():
        if not isinstance(value, int):
            raise UsageError(f"config takes whole numbers by parameter, got {name}={value!r}.")
    return ",".join(f"{name}={int(value)}" for name, value in (config or {}).items())
