"""The six kernels of scientific computing as tasks: AXPY, GEMV, GEMM, SpMV, a Jacobi sweep and conjugate gradients.

They are the kernels of the study "Evaluation of OpenAI Codex for HPC Parallel Programming Models Kernel Generation"
(Godoy et al., arXiv 2306.15121), in fp32. The docstring of each reference says what its errors are in proportion to.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task
from constrint.propose.values import draw_operand, generator

#: torch loads its solver at the first call, and fails where two threads make it at once.
_SOLVING = threading.Lock()


class ScientificTask(Task):
    """A task in fp32."""

    dtypes = ("fp32",)
    timed_dtype = "fp32"


class Axpy(ScientificTask):
    """z = alpha x + y."""

    name = "axpy"
    summary = "z = alpha * x + y, elementwise; alpha is a tensor with one element."
    extents = (Extent("n", "elements", most=1 << 28, usual=500, timed=1 << 26),)

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The factor and two vectors."""
        n = sizes["n"]
        return Operand("alpha", (1,), is_parameter=True), Operand("x", (n,)), Operand("y", (n,))

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A vector like x."""
        x = inputs["x"]
        return {"z": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """One operation of PyTorch."""
        alpha, x, y = inputs
        return y.addcmul(alpha, x)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """A sum of two terms."""
        product, y = inputs["alpha"] * inputs["x"], inputs["y"]
        return {"z": Expected(product + y, product.abs() + y.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """Two."""
        return 2

    def flops(self, sizes: Sizes) -> float:
        """A product and a sum for each element."""
        return 2.0 * sizes["n"]


class Gemv(ScientificTask):
    """y = A x."""

    name = "gemv"
    summary = "y = A x for a matrix a of m rows and n columns."
    extents = (
        Extent("m", "rows", most=1 << 20, usual=40, timed=8192),
        Extent("n", "columns", most=1 << 16, usual=150, timed=8192, long=3000),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The matrix and the vector."""
        m, n = sizes["m"], sizes["n"]
        return Operand("a", (m, n)), Operand("x", (n,))

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A number for each row."""
        a = inputs["a"]
        return {"y": a.new_empty(a.shape[:1])}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's product, a library's."""
        a, x = inputs
        return a @ x

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """Sums of n products."""
        a, x = inputs["a"], inputs["x"]
        return {"y": Expected(a @ x, a.abs() @ x.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The columns."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """A product and a sum for each element of the matrix."""
        return 2.0 * sizes["m"] * sizes["n"]


class Gemm(ScientificTask):
    """C = A B."""

    name = "gemm"
    summary = "C = A B for a of m rows and k columns and b of k rows and n columns, in full fp32 (no tf32)."
    extents = (
        Extent("m", "rows of a", most=1 << 16, usual=40, timed=4096),
        Extent("n", "columns of b", most=1 << 16, usual=40, timed=4096),
        Extent("k", "columns of a", most=1 << 16, usual=40, timed=4096, long=600),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The two matrices."""
        return Operand("a", (sizes["m"], sizes["k"])), Operand("b", (sizes["k"], sizes["n"]))

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The product."""
        a, b = inputs["a"], inputs["b"]
        return {"c": a.new_empty((a.shape[0], b.shape[1]))}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's product, a library's."""
        a, b = inputs
        return a @ b

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """Sums of k products."""
        a, b = inputs["a"], inputs["b"]
        return {"c": Expected(a @ b, a.abs() @ b.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The columns of a."""
        return sizes["k"]

    def flops(self, sizes: Sizes) -> float:
        """A product and a sum for each triple."""
        return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]


class Spmv(ScientificTask):
    """y = A x with A in compressed sparse rows."""

    name = "spmv"
    summary = (
        "y = A x with A in compressed sparse rows: row i of A has values[j] in column columns[j] for j from starts[i] "
        "to below starts[i + 1]. Rows may be empty, and columns unsorted or repeated (their values add up)."
    )
    extents = (
        Extent("m", "rows; starts has m + 1 elements", most=1 << 26, usual=40, timed=1 << 21),
        Extent("n", "columns", most=1 << 26, usual=60, timed=1 << 21),
        Extent("z", "stored values", most=1 << 28, usual=300, timed=1 << 25, long=3000),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The matrix in three vectors, and the vector."""
        m, n, z = sizes["m"], sizes["n"], sizes["z"]
        return (
            Operand("starts", (m + 1,), "i64", below=z + 1),
            Operand("columns", (z,), "i64", below=n),
            Operand("values", (z,)),
            Operand("x", (n,)),
        )

    def draw(self, sizes: Sizes, dtype: str, *, seed: int, device: str = "cpu", style: str = "plain") -> dict[str, Any]:
        """Random starts in order, so that lengths of rows are spread as 1 / m of all stored values and many are 0."""
        inputs = super().draw(sizes, dtype, seed=seed, device=device, style=style)
        starts = inputs["starts"].sort().values
        starts[0], starts[-1] = 0, sizes["z"]
        return {**inputs, "starts": starts}

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A number for each row."""
        values = inputs["values"]
        return {"y": values.new_empty(inputs["starts"].shape[0] - 1)}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's product, a library's."""
        import torch

        starts, columns, values, x = inputs
        shape = (starts.shape[0] - 1, x.shape[0])
        with warnings.catch_warnings():
            # That sparse rows are in beta state is said once in a process.
            warnings.simplefilter("ignore")
            matrix = torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
        return matrix @ x

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """Sums of as many products as a row has stored values, at most all."""
        import torch

        starts = inputs["starts"]
        num_rows = starts.shape[0] - 1
        products = inputs["values"] * inputs["x"][inputs["columns"]]
        rows = torch.arange(num_rows, device=starts.device).repeat_interleave(starts.diff())
        zeros = products.new_zeros(num_rows)
        return {"y": Expected(zeros.index_add(0, rows, products), zeros.index_add(0, rows, products.abs()))}

    def num_terms(self, sizes: Sizes) -> int:
        """All stored values, which may be in one row."""
        return sizes["z"]

    def flops(self, sizes: Sizes) -> float:
        """A product and a sum for each stored value."""
        return 2.0 * sizes["z"]


class Jacobi(ScientificTask):
    """One sweep of the 7-point stencil."""

    name = "jacobi"
    summary = (
        "one Jacobi sweep of the 7-point stencil in three dimensions: inside the grid v = (the sum of the six "
        "neighbours of u + f) / 6, on its border (the first and the last index of any dimension) v = u."
    )
    extents = tuple(
        Extent(name, f"points along the {place} dimension", most=4096, usual=9, timed=512)
        for name, place in (("d", "first"), ("h", "second"), ("w", "third"))
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The grid and the right-hand side."""
        shape = (sizes["d"], sizes["h"], sizes["w"])
        return Operand("u", shape), Operand("f", shape)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The next grid."""
        u = inputs["u"]
        return {"v": u.new_empty(u.shape)}

    def plain(self, *inputs: Any) -> Any:
        """The sweep as it is written by hand in PyTorch."""
        u, f = inputs
        v = u.clone()
        if min(u.shape) > 2:
            v[1:-1, 1:-1, 1:-1] = (_neighbours(u) + f[1:-1, 1:-1, 1:-1]) / 6
        return v

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """Sums of seven terms; the border is copied."""
        u, f = inputs["u"], inputs["f"]
        magnitude = u.abs()
        if min(u.shape) > 2:
            magnitude[1:-1, 1:-1, 1:-1] = (_neighbours(u.abs()) + f[1:-1, 1:-1, 1:-1].abs()) / 6
        return {"v": Expected(self.plain(u, f), magnitude)}

    def num_terms(self, sizes: Sizes) -> int:
        """Seven."""
        return 7

    def flops(self, sizes: Sizes) -> float:
        """Six sums and a product for each inner point."""
        return 7.0 * max(0, sizes["d"] - 2) * max(0, sizes["h"] - 2) * max(0, sizes["w"] - 2)


def _neighbours(u: Any) -> Any:
    """The sum of the six neighbours of every inner point."""
    inner = slice(1, -1)
    return (
        u[:-2, inner, inner] + u[2:, inner, inner] + u[inner, :-2, inner] + u[inner, 2:, inner]
        + u[inner, inner, :-2] + u[inner, inner, 2:]
    )  # fmt: skip


class ConjugateGradients(ScientificTask):
    """x with A x = b for many small matrices."""

    name = "cg"
    summary = (
        "s systems at once, each by conjugate gradients: x[i] solves a[i] x[i] = b[i] for symmetric positive definite "
        "a[i] of n rows, whose largest eigenvalue is at most 5/3 times the least, so that `steps` steps reach the "
        "precision of fp32. A residual may become exactly 0 (b may be 0), or nothing but roundings: divide by no zero "
        "then, and take no step along what roundings left."
    )
    constants: Mapping[str, float] = {"steps": 10}
    #: A is a multiple of I + S with |S| at most this in every norm.
    coupling = 0.25
    extents = (
        Extent("s", "systems", most=1 << 16, usual=8, timed=16384),
        Extent("n", "unknowns of a system", most=128, usual=16, timed=64),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The matrices and the right-hand sides."""
        s, n = sizes["s"], sizes["n"]
        return Operand("a", (s, n, n)), Operand("b", (s, n))

    def draw(self, sizes: Sizes, dtype: str, *, seed: int, device: str = "cpu", style: str = "plain") -> dict[str, Any]:
        """Matrices 2^p (I + S): S is symmetric with absolute row sums of at most `coupling`, p is drawn from -3 to 3.

        In a set of equal values the first right-hand side is 0.
        """
        import torch

        random = generator(seed, device)
        matrices, sides = self.operands(sizes)
        a, b = draw_operand(matrices, dtype, random, "plain"), draw_operand(sides, dtype, random, style)
        if style == "equal":
            b[0] = 0
        coupled = (a + a.mT) / 2
        coupled = coupled * (self.coupling / coupled.abs().sum(dim=2).amax(dim=1).clamp_min(1e-30))[:, None, None]
        power = torch.randint(-3, 4, (sizes["s"], 1, 1), generator=random, device=device)
        identity = torch.eye(sizes["n"], device=device)
        return {"a": 2.0**power * (identity + coupled), "b": b}

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The solutions."""
        b = inputs["b"]
        return {"x": b.new_empty(b.shape)}

    def plain(self, *inputs: Any) -> Any:
        """The iteration as it is written by hand in PyTorch, all systems at once."""
        a, b = inputs
        x, r = b * 0, b
        p, rr = r, (r * r).sum(dim=1, keepdim=True)
        for _ in range(int(self.constants["steps"])):
            q = (a @ p[:, :, None])[:, :, 0]
            curvature = (p * q).sum(dim=1, keepdim=True)
            step = (rr / curvature).where(curvature > 0, 0)
            x, r = x + step * p, r - step * q
            new = (r * r).sum(dim=1, keepdim=True)
            p, rr = r + (new / rr).where(rr > 0, 0) * p, new
        return x

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """The errors of a solution are in proportion to its norm and to the ratio of eigenvalues, which is 5 / 3."""
        import torch

        a, b = inputs["a"], inputs["b"]
        with _SOLVING:
            x = torch.linalg.solve(a, b)
        ratio = (1 + self.coupling) / (1 - self.coupling)
        return {"x": Expected(x, ratio * x.norm(dim=1, keepdim=True).expand(x.shape))}

    def num_terms(self, sizes: Sizes) -> int:
        """The unknowns of a system."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """A product and a sum for each element of each matrix: no system is solved without reading it."""
        return 2.0 * sizes["s"] * sizes["n"] ** 2


TASKS: tuple[Task, ...] = (Axpy(), Gemv(), Gemm(), Spmv(), Jacobi(), ConjugateGradients())
