"""The kinds of products that are launched: how each is drawn, called, and computed in fp64."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.launches.bounds import BENDS, HALF_UNIT, SLOPES, finished, share_of_sums, sums_of
from benchmarks.launches.memory import Guarded, Place
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.checks import common_batch
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.reference import ACTIVATIONS as REFERENCES
from constrint.kernels.gemm.reference import default_out_dtype
from constrint.kernels.gemm.spec import gemm_specs

Operands = Mapping[str, Tensor]
Exact = tuple[Tensor, Tensor, Tensor | None]
HALVES = (torch.bfloat16, torch.float16)
NAMES = tuple(sorted(ACTIVATIONS))
#: Most operations (m n k) and elements of one product.
MOST_WORK, MOST_ELEMENTS = 1 << 29, 1 << 23


@dataclass
class Drawn:
    """A product to launch.

    Args:
        kind: Its kind.
        text: What is called.
        places: Operands by name.
        call: Computes it from operands; a tensor, or a tensor with the memory around it.
        exact: From operands, and whether values are whole numbers: the result in fp64, its bound, what was activated.
        activation: Its name, or None.
        precision: torch's setting for fp32 products.
        repeats: Whether two calls give the same bits.
        grads: Operands whose gradients are compared; `gradient` computes them from operands and the result's gradient.
        fills: Values of operands that are not drawn like others: name -> a function of the generator and the mode.
        in_graphs: Whether the call can be captured.
        chosen: The configuration, once it was drawn.
    """

    kind: str
    text: str
    places: dict[str, Place]
    call: Callable[[Operands], Any]
    exact: Callable[[Operands, bool], Exact]
    activation: str | None = None
    precision: str = "highest"
    repeats: bool = False
    grads: tuple[str, ...] = ()
    gradient: Callable[[Operands, Tensor, bool], dict[str, tuple[Tensor, Tensor]]] | None = None
    fills: dict[str, Callable[[torch.Generator, str], Tensor]] = field(default_factory=dict)
    in_graphs: bool = True
    chosen: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        tensors = ", ".join(f"{name}={place}" for name, place in self.places.items())
        return f"{self.kind}: {self.text}; {tensors}; {self.precision}"


@dataclass
class Limits:
    """Limits of drawn sizes, lower under a sanitizer."""

    side: int = 4096


LIMITS = Limits()


def sizes_drawn(draw: random.Random, *, kernel: str = "", may_be_empty: bool = False) -> tuple[int, int, int]:
    """M, N and K: ragged ones, round ones, single rows, and now and then nothing at all."""

    def one(most: int) -> int:
        kind = draw.random()
        if kind < 0.08:
            return 1
        if kind < 0.3:
            return draw.randint(1, 40)
        if kind < 0.5:
            return draw.choice((16, 32, 64, 128, 256, 512, 1024))
        return min(most, int(2 ** draw.uniform(2, 12)))

    while True:
        m, n, k = (min(one(4096), LIMITS.side) for _ in range(3))
        if kernel == "skinny":
            short = draw.choice((1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64))
            m, n = (short, n) if draw.random() < 0.6 else (m, short)
        if m * n * k <= MOST_WORK and max(m * n, m * k, n * k) <= MOST_ELEMENTS:
            break
    if may_be_empty and draw.random() < 0.03:
        at = draw.randrange(3)
        m, n, k = (0 if place == at else size for place, size in enumerate((m, n, k)))
    return m, n, k


# Products of `matmul`.


def drawn_matmul(draw: random.Random, *, with_gradients: bool = False) -> Drawn:
    """A call of `matmul`."""
    kernel = _kernel_of(draw, with_gradients)
    dtype = _dtype_of(draw, kernel, with_gradients)
    precision = _precision_of(draw, dtype, kernel)
    m, n, k = sizes_drawn(draw, kernel=kernel, may_be_empty=kernel == "auto" and not with_gradients)
    aligned = kernel in ("cuda", "descriptor") or draw.random() < (0.6 if kernel == "fp32" else 0.3)
    along_k = (kernel == "cuda" and dtype.itemsize != 2) or (kernel == "fp32" and precision == "high")
    lies = (False, True) if along_k else (draw.random() < 0.5, draw.random() < 0.5)
    if kernel == "prepared":
        lies = draw.choice(((True, False), (False, False), (True, True)))
    a, b = _shapes_of(draw, m, n, k, kernel, with_gradients)
    places = {
        "a": Place.drawn(draw, a, dtype, by_columns=lies[0], aligned=aligned),
        "b": Place.drawn(draw, b, dtype, by_columns=lies[1], aligned=aligned),
    }
    if len(a) == 3 and len(b) == 3 and not with_gradients and draw.random() < 0.15:
        name = draw.choice("ab")
        places[name] = _repeated(places[name])
    end = _end_of(draw, dtype, kernel)
    added = dtype if dtype in (*HALVES, torch.float32, torch.float64) else end["out_dtype"] or torch.float32
    shape = _result_shape(a, b)
    has_rows = bool(shape) and len(b) > 1
    if not has_rows or (dtype == torch.int8 and end["out_dtype"] is None):
        end["bias"] = end["c"] = False
    if end.pop("bias"):
        places["bias"] = Place.drawn(draw, (n,), added, plain=draw.random() < 0.7)
    if end.pop("c") and end["beta"] != 0.0:
        whole = shape if with_gradients or draw.random() < 0.7 else shape[-1:]
        places["c"] = Place.drawn(draw, whole, added, by_columns=draw.random() < 0.3)
    elif end["beta"] != 0.0:
        end["beta"] = 0.0
    out_dtype = end["out_dtype"] or default_out_dtype(dtype)
    may_round = kernel in ("auto", "library", "library+pointwise") or with_gradients
    config_seed = draw.randrange(1 << 30) if kernel in CONFIGURED and draw.random() < 0.75 else None
    config_seed = config_seed if torch.cuda.is_available() else None
    options = {key: value for key, value in end.items() if value is not None and (key, value) not in PLAIN_ENDS}
    chosen: dict[str, Any] = {}

    def call(operands: Operands) -> Tensor:
        if config_seed is not None and "config" not in chosen:
            chosen["config"] = config_drawn(kernel, operands, out_dtype, precision, config_seed, end["activation"])
        more: dict[str, Any] = {"config": chosen["config"]} if chosen else {}
        more |= {"c": operands.get("c"), "kernel": kernel, **options}
        return matmul(operands["a"], operands["b"], operands.get("bias"), **more)

    def exact(operands: Operands, is_exact: bool) -> Exact:
        sums = sums_of(operands["a"], operands["b"], precision=precision, is_exact=is_exact)
        return finished(
            sums, out_dtype, bias=operands.get("bias"), c=operands.get("c"), alpha=end["alpha"], beta=end["beta"],
            activation=end["activation"], may_round_before=may_round,
        )  # fmt: skip

    shown = ", ".join(f"{key}={value!r}" for key, value in {**options, "kernel": kernel}.items())
    text = f"matmul({shown}{'' if config_seed is None else f', config drawn by {config_seed}'})"
    found = Drawn(
        "gradients" if with_gradients else "matmul", text, places, call, exact, end["activation"], precision,
        repeats=kernel in CONFIGURED,
    )  # fmt: skip
    if with_gradients:
        found.grads = tuple(name for name in places if draw.random() < 0.8) or ("a",)
        found.gradient = gradient_of(end, out_dtype, precision)
        found.in_graphs = False
    return found


#: Ends that change nothing.
PLAIN_ENDS = (("alpha", 1.0), ("beta", 0.0))
#: Kernels that a caller may name with a configuration.
CONFIGURED = tuple(spec.name for spec in gemm_specs() if spec.has_tiles)


class RefusedError(Exception):
    """The named kernel does not compute the product."""


def config_drawn(
    kernel: str, operands: Operands, out_dtype: torch.dtype, precision: str, seed: int, activation: str | None = None
) -> dict[str, int]:
    """A configuration of a kernel that is valid for a product."""
    from constrint.kernels.gemm.checks import stack
    from constrint.kernels.gemm.operands import product_of, with_aligned_stride
    from constrint.kernels.gemm.spec import gemm_spec
    from constrint.kernels.launch.device import gpu_of
    from constrint.solve import enumerate_space

    a, b = operands["a"], operands["b"]
    gpu = gpu_of(a.device) if a.is_cuda else None
    if gpu is None:
        raise RefusedError("no GPU")
    stacked = stack(a, b, None, operands.get("c"), 1.0, float("c" in operands), None, torch.float32)
    product = product_of(
        with_aligned_stride(stacked.a), with_aligned_stride(stacked.b), operands.get("bias"), stacked.c, out_dtype,
        is_three_pass=a.dtype == torch.float32 and precision == "highest", activation=activation or "",
    )  # fmt: skip
    spec = gemm_spec(f"gemm.{kernel}")
    refusal = spec.refusal(gpu, product)
    if refusal:
        raise RefusedError(f"gemm.{kernel}: {refusal}")
    space = enumerate_space(spec.product_problem(gpu, product))
    if not space.size:
        raise RefusedError(f"gemm.{kernel}: no valid configuration")
    return dict(space.sample(1, seed=seed)[0])


def _kernel_of(draw: random.Random, with_gradients: bool) -> str:
    if with_gradients:
        return draw.choice(("auto", "auto", "auto", "kernels", "library"))
    if draw.random() < 0.45:
        return draw.choice(("auto", "auto", "auto", "auto", "kernels", "library", "library+pointwise"))
    return draw.choice((*CONFIGURED, "cuda", "cuda", "skinny", "fp32"))


def _dtype_of(draw: random.Random, kernel: str, with_gradients: bool) -> torch.dtype:
    if kernel in ("fp32", "prepared"):
        return torch.float32
    if with_gradients:
        return draw.choice((*HALVES, *HALVES, torch.float32))
    wide = (torch.float64,) if kernel == "auto" else ()
    kinds: tuple[torch.dtype, ...] = (*HALVES, *HALVES, torch.float32, torch.float32, torch.float8_e4m3fn, torch.int8)
    found: torch.dtype = draw.choice((*kinds, *wide))
    return found


def _precision_of(draw: random.Random, dtype: torch.dtype, kernel: str) -> str:
    if dtype != torch.float32:
        return "highest"
    return "high" if kernel == "prepared" or (kernel != "fp32" and draw.random() < 0.5) else "highest"


def _shapes_of(
    draw: random.Random, m: int, n: int, k: int, kernel: str, with_gradients: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    kind = draw.random()
    if kernel in ("fp32", "prepared") or kind < 0.6:
        return (m, k), (k, n)
    most = max(1, min(MOST_WORK // max(m * n * k, 1), MOST_ELEMENTS // max(m * n, m * k, n * k, 1)))
    batch = min(most, draw.choice((1, 2, 3, 7, 16, 40)))
    if kind < 0.85:
        return (batch, m, k), (batch, k, n)
    if kind < 0.9:
        return (batch, m, k), (k, n)
    if with_gradients:
        return (m, k), (k, n)
    if kind < 0.94 and batch > 1:
        return draw.choice((((batch, 1, m, k), (2, k, n)), ((1, m, k), (batch, k, n)), ((m, k), (batch, k, n))))
    if kind < 0.97:
        return draw.choice((((k,), (k, n)), ((m, k), (k,)), ((k,), (k,))))
    return (2, batch, m, k), (2, batch, k, n)


def _result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    batch = common_batch(a[:-2], b[:-2])
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


def _repeated(place: Place) -> Place:
    return Place(place.shape, place.dtype, place.order, place.gap, place.offset, place.step, (0,))


def _end_of(draw: random.Random, dtype: torch.dtype, kernel: str) -> dict[str, Any]:
    end: dict[str, Any] = {"alpha": 1.0, "beta": 0.0, "activation": None, "out_dtype": None, "bias": False, "c": False}
    if dtype == torch.float64 or draw.random() < 0.3:
        return end
    end["bias"], end["c"] = draw.random() < 0.5, draw.random() < 0.35
    end["alpha"] = draw.choice((1.0, 1.0, 0.5, -2.0))
    end["beta"] = draw.choice((1.0, -0.5, 2.0)) if end["c"] else 0.0
    end["activation"] = draw.choice((None, *NAMES))
    if dtype == torch.int8 or draw.random() < 0.2:
        end["out_dtype"] = draw.choice((torch.float16, torch.bfloat16, torch.float32))
    return end


def gradient_of(end: Mapping[str, Any], out_dtype: torch.dtype, precision: str) -> Any:
    """Gradients of a call of `matmul` in fp64, and their bounds.

    The sum's gradient is rounded to the operands' type; the activation's argument was rounded as it was stored.
    """

    def gradients(operands: Operands, gradient: Tensor, is_exact: bool) -> dict[str, tuple[Tensor, Tensor]]:
        wide = {name: t.detach().double().requires_grad_() for name, t in operands.items()}
        sums = sums_of(operands["a"].detach(), operands["b"].detach(), precision=precision, is_exact=is_exact)
        ends = {"bias": operands.get("bias"), "c": operands.get("c"), "alpha": end["alpha"], "beta": end["beta"]}
        z, z_error, _ = finished(sums, out_dtype, **ends, may_round_before=True)
        unit = HALF_UNIT[operands["a"].dtype]
        z_error = z_error + max(unit, HALF_UNIT[out_dtype]) * z.abs()
        z_wide = z.detach().requires_grad_()
        g = gradient.double()
        if end["activation"] is None:
            dz, dz_error = g, torch.zeros_like(g)
        else:
            (dz,) = torch.autograd.grad(REFERENCES[end["activation"]](z_wide), z_wide, g)
            bend = BENDS[end["activation"]]
            jump = torch.where(z.abs() <= z_error, 1.0, 0.0) if end["activation"] == "relu" else bend * z_error
            slope = 2 * z.abs() if end["activation"] == "relu2" else SLOPES[end["activation"]]
            dz_error = g.abs() * jump + (unit + 2.0**-16) * slope * g.abs() * 1.01
        dz_error = dz_error + 3.03 * unit * dz.abs()
        scaled, scaled_error = abs(end["alpha"]) * dz, abs(end["alpha"]) * dz_error
        found: dict[str, tuple[Tensor, Tensor]] = {}
        a, b = wide["a"].detach(), wide["b"].detach()
        sign = 1.0 if end["alpha"] >= 0 else -1.0
        dtype = operands["a"].dtype
        for name, left, left_error, right, depth in (
            ("a", scaled, scaled_error, b.transpose(-1, -2), b.shape[-1]),
            ("b", a.transpose(-1, -2), None, scaled, a.shape[-2]),
        ):
            value = sign * (left @ right)
            size = left.abs() @ right.abs()
            error = left_error @ right.abs() if left_error is not None else left.abs() @ scaled_error
            error = error + share_of_sums(dtype, precision, depth * _rows_beside(operands, name)) * size + SUBNORMAL
            found[name] = _reduced(value, operands[name].shape), _reduced(error, operands[name].shape)
        if "bias" in operands:
            n = operands["bias"].shape
            rows = dz.numel() // max(n[0], 1)
            share = 2.0**-23 * (4 + rows)
            found["bias"] = _reduced(dz, n), _reduced(dz_error + share * dz.abs(), n)
        if "c" in operands:
            shape = operands["c"].shape
            narrow = 2 * unit * abs(end["beta"])
            found["c"] = (
                _reduced(end["beta"] * dz, shape),
                _reduced(abs(end["beta"]) * dz_error + narrow * dz.abs(), shape),
            )
        return found

    return gradients


#: The least error of gradients: fp32's subnormal numbers.
SUBNORMAL = 2.0**-110


def _rows_beside(operands: Operands, name: str) -> int:
    """How often the sum of a gradient goes over a batch."""
    a, b = operands["a"], operands["b"]
    return a.shape[0] if name == "b" and a.dim() > b.dim() else 1


def _reduced(t: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
    """A gradient summed over the axes along which its operand was broadcast."""
    while t.dim() > len(shape):
        t = t.sum(0)
    axes = [axis for axis, size in enumerate(shape) if size == 1 and t.shape[axis] != 1]
    return t.sum(axes, keepdim=True) if axes else t


# Launches of our kernels with results in guarded memory.


def drawn_direct(draw: random.Random, *, kernel: str = "") -> Drawn:
    """A launch of one of our kernels with a drawn configuration; its result lies between guards."""
    kernel = kernel or draw.choice((*CONFIGURED, "cuda", "cuda", "skinny", "fp32"))
    dtype = _dtype_of(draw, kernel, False)
    precision = _precision_of(draw, dtype, kernel)
    m, n, k = sizes_drawn(draw, kernel=kernel)
    along_k = (kernel == "cuda" and dtype.itemsize != 2) or (kernel == "fp32" and precision == "high")
    lies = (False, True) if along_k else (draw.random() < 0.5, draw.random() < 0.5)
    if kernel == "prepared":
        lies = draw.choice(((True, False), (False, False), (True, True)))
    batch = 1
    if kernel not in ("fp32", "prepared") and draw.random() < 0.3:
        batch = max(
            1, min(draw.choice((2, 3, 7, 16)), MOST_WORK // (m * n * k), MOST_ELEMENTS // max(m * n, m * k, n * k))
        )
    aligned = kernel in ("cuda", "descriptor") or draw.random() < (0.6 if kernel == "fp32" else 0.3)
    places = {
        "a": Place.drawn(draw, (batch, m, k), dtype, by_columns=lies[0], aligned=aligned),
        "b": Place.drawn(draw, (batch, k, n), dtype, by_columns=lies[1], aligned=aligned),
    }
    end = _end_of(draw, dtype, kernel)
    out_dtype = end["out_dtype"] or default_out_dtype(dtype)
    added = dtype if dtype in (*HALVES, torch.float32) else out_dtype if out_dtype.is_floating_point else torch.float32
    if dtype == torch.int8 and end["out_dtype"] is None:
        end["bias"] = end["c"] = False
    if end["bias"]:
        places["bias"] = Place.drawn(draw, (n,), added, plain=True)
    if end["c"]:
        places["c"] = Place.drawn(draw, (batch, m, n), added, by_columns=draw.random() < 0.3)
    else:
        end["beta"] = 0.0
    # C has rows of its own distance and, now and then, starts anywhere.
    gap = draw.choice((0, 0, -n % 8, 8, 3))
    place = Place((batch, m, n), out_dtype, (0, 1, 2), gap, draw.choice((0, 0, 0, 8, 1)))
    seed = draw.randrange(1 << 30)
    chosen: dict[str, Any] = {}

    def call(operands: Operands) -> Guarded:
        from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
        from constrint.kernels.gemm.operands import with_aligned_stride
        from constrint.kernels.gemm.spec import gemm_spec
        from constrint.kernels.launch.device import gpu_of
        from constrint.kernels.launch.look import look

        if "config" not in chosen:
            chosen["config"] = config_drawn(kernel, operands, out_dtype, precision, seed, end["activation"])
        out = Guarded.at(place, operands["a"].device)
        gpu = gpu_of(operands["a"].device)
        assert gpu is not None
        epilogue = Epilogue(operands.get("bias"), operands.get("c"), end["alpha"], end["beta"], end["activation"])
        how = "ieee" if dtype != torch.float32 else "tf32x3" if precision == "highest" else "tf32"
        tensors = with_aligned_stride(operands["a"]), with_aligned_stride(operands["b"]), out.view
        launches = gemm_spec(f"gemm.{kernel}").call_launches(
            GemmCall(*tensors, Machine.of(gpu), epilogue, how), chosen["config"]
        )
        if "is_clean" not in chosen:
            look(launches)
            chosen["is_clean"] = True
        for each in launches:
            each.run()
        return out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        sums = sums_of(operands["a"], operands["b"], precision=precision, is_exact=is_exact)
        return finished(
            sums, out_dtype, bias=operands.get("bias"), c=operands.get("c"), alpha=end["alpha"], beta=end["beta"],
            activation=end["activation"],
        )  # fmt: skip

    shown = {key: value for key, value in end.items() if key not in ("bias", "c") and value is not None}
    text = f"gemm.{kernel} {shown} config drawn by {seed}, out {place}"
    return Drawn("direct", text, places, call, exact, end["activation"], precision, repeats=True, chosen=chosen)
