"""What a caller of `matmul` may ask for: all that there is, our kernels, one of them, or torch's product."""

from __future__ import annotations

from functools import lru_cache

from constrint.errors import UnknownNameError

AUTO, KERNELS, LIBRARY_ALONE = "auto", "kernels", "library"
IMPLEMENTATIONS = (AUTO, KERNELS, LIBRARY_ALONE)
#: What calls ask for that want one kernel for any number of rows; no caller of `matmul` does.
STEADY_KERNEL = "steady"
#: Why the library is out of question where something else was asked for.
OTHERS_ASKED = {
    KERNELS: "the caller asked for kernels of this package",
    STEADY_KERNEL: "one kernel has to serve any number of rows at little cost to the host",
}


def of_gradients(name: str) -> str:
    """What a product's gradients are computed by: torch's own product may compute it, but not its gradients."""
    return KERNELS if name == KERNELS else AUTO


def check_implementation(name: str) -> None:
    """Refuse what is no implementation.

    Raises:
        UnknownNameError: For an unknown name.
    """
    if name not in (*IMPLEMENTATIONS, STEADY_KERNEL) and name not in kernel_names():
        raise UnknownNameError("implementation", str(name), (*IMPLEMENTATIONS, *kernel_names()))


@lru_cache(maxsize=1)
def kernel_names() -> tuple[str, ...]:
    """Names of the operation's kernels that have tiles to choose: a caller may ask for one of them alone."""
    from constrint.kernels.gemm.first_choice import gemm_specs

    return tuple(spec.name for spec in gemm_specs() if spec.has_tiles)
