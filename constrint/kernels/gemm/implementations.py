"""What a caller of `matmul` may ask for: the choice among all, our kernels alone, or torch's own product alone."""

from __future__ import annotations

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
    if name not in (*IMPLEMENTATIONS, STEADY_KERNEL):
        raise UnknownNameError("implementation", str(name), IMPLEMENTATIONS)
