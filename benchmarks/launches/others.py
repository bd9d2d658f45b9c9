"""Kinds beside `matmul`: gated pairs, grouped, scaled and quantised products, and layers."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from benchmarks.launches.bounds import FLUSHED, HALF_UNIT, LEAST_HALF, Sums, activated, finished, share_of_sums, sums_of
from benchmarks.launches.kinds import HALVES, NAMES, Drawn, Exact, Operands, gradient_of, sizes_drawn
from benchmarks.launches.memory import Place, values_of

#: Largest group of experts that is drawn.
MOST_EXPERTS = 24


def drawn_gated(draw: random.Random) -> Drawn:
    """A call of `gated_matmul`."""
    from constrint.kernels.gemm.gated import gated_matmul

    kernel = draw.choice(("auto", "auto", "cuda", "cuda", "cuda", "pointer", "composition"))
    is_fused = kernel in ("cuda", "pointer")
    dtype = draw.choice((*HALVES, *HALVES, torch.float32)) if kernel == "auto" else draw.choice(HALVES)
    m, n, k = sizes_drawn(draw, may_be_empty=kernel == "auto")
    aligned, by_columns = kernel == "cuda" or draw.random() < 0.4, draw.random() < 0.6
    if kernel == "cuda":
        n = -(-n // 8) * 8 if by_columns else -(-n // 64) * 64
    is_joined, activation = draw.random() < 0.4, draw.choice(NAMES)
    lead = draw.choice(((), (), (), (2,)))
    places = {"a": Place.drawn(draw, (*lead, m, k), dtype, aligned=aligned, plain=bool(lead))}
    if is_joined:
        places["gate"] = Place.drawn(draw, (k, 2 * n), dtype, by_columns=by_columns, aligned=aligned)
    else:
        for name in ("gate", "up"):
            places[name] = Place.drawn(draw, (k, n), dtype, by_columns=by_columns, aligned=aligned)
    biases = [name for name in ("bias_gate", "bias_up") if draw.random() < 0.4]
    for name in biases:
        places[name] = Place.drawn(draw, (n,), dtype, plain=draw.random() < 0.7)
    precision = draw.choice(("highest", "high")) if dtype == torch.float32 else "highest"

    def call(operands: Operands) -> Tensor:
        options: dict[str, Any] = {name: operands.get(name) for name in ("bias_gate", "bias_up")}
        pair = operands["gate"], None if is_joined else operands["up"]
        out: Tensor = gated_matmul(operands["a"], *pair, activation=activation, **options, kernel=kernel)
        return out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        gate = operands["gate"]
        gate, up = (gate[:, :n], gate[:, n:]) if is_joined else (gate, operands["up"])
        zs, errors = [], []
        for weight, name in ((gate, "bias_gate"), (up, "bias_up")):
            sums = sums_of(operands["a"], weight, precision=precision, is_exact=is_exact)
            z, error, _ = finished(
                sums, dtype, bias=operands.get(name), may_round_before=not is_fused, alpha=1.0
            )  # fmt: skip
            zs.append(z)
            more = 0.0 * z if is_fused else HALF_UNIT[dtype] * 1.01 * z.abs() + LEAST_HALF[dtype]
            errors.append(torch.where(z.isfinite(), error + more, 0.0))
        value, bound = activated(zs[0], errors[0], activation, dtype)
        if not is_fused:
            bound = bound + 1.01 * HALF_UNIT[dtype] * value.abs() + LEAST_HALF[dtype]
        whole = value * zs[1]
        bound = bound * zs[1].abs() + (value.abs() + bound) * errors[1] + 2.0**-23 * whole.abs() + FLUSHED
        # At minus infinity an activation that vanishes may be 0 or NaN, and a product with it as well; where it is so
        # small that fp64 has 0 for it, its product with infinity is NaN there.
        loose = (value.abs() < 2.0**-24) & zs[1].isinf()
        if not is_fused:
            # Factors are rounded, and may be infinite where their product is not.
            loose |= torch.maximum(value.abs() + bound, zs[1].abs() + errors[1]) > torch.finfo(dtype).max
        before = torch.where(loose, torch.nan, zs[0])
        return whole, torch.where(whole.isfinite(), bound, 0.0), before

    text = f"gated_matmul(activation={activation!r}, kernel={kernel!r}, joined={is_joined})"
    return Drawn("gated", text, places, call, exact, activation, precision, repeats=kernel != "auto")


def drawn_grouped(draw: random.Random) -> Drawn:
    """A call of `grouped_matmul`, whose offsets may be anything."""
    from constrint.kernels.grouped import grouped_matmul

    kernel = draw.choice(("auto", "auto", "cuda", "cuda", "library", "loop"))
    dtype = torch.bfloat16 if kernel == "library" else draw.choice(HALVES)
    experts = draw.choice((1, 2, 3, 5, 8, draw.randint(1, MOST_EXPERTS)))
    m, n, k = sizes_drawn(draw, may_be_empty=kernel == "auto")
    n, k = min(n, 1024), min(k, 1024)
    aligned = kernel in ("cuda", "library") or draw.random() < 0.6
    if kernel == "library":
        n, k = -(-n // 8) * 8, -(-k // 8) * 8
    by_columns = draw.random() < 0.5
    places = {
        "a": Place.drawn(draw, (m, k), dtype, by_columns=kernel == "cuda" and draw.random() < 0.2, aligned=aligned),
        "b": Place.drawn(draw, (experts, k, n), dtype, by_columns=by_columns, aligned=aligned),
        "offsets": Place((experts,), torch.int32, (0,)),
    }
    end: dict[str, Any] = {"activation": None, "alpha": 1.0, "out_dtype": None}
    if kernel != "library" and draw.random() < 0.6:
        end = {
            "activation": draw.choice((None, *NAMES)), "alpha": draw.choice((1.0, 0.5, -2.0)),
            "out_dtype": draw.choice((None, None, torch.float32, *HALVES)),
        }  # fmt: skip
        if draw.random() < 0.5:
            shape = draw.choice(((n,), (experts, n)))
            places["bias"] = Place.drawn(draw, shape, dtype, plain=draw.random() < 0.7)
    out_dtype = end["out_dtype"] or dtype
    is_wild = kernel in ("auto", "cuda", "loop") and draw.random() < 0.25

    def offsets(generator: torch.Generator, mode: str) -> Tensor:
        low, high = (-3, m + 4) if is_wild else (0, m + 1)
        found = torch.randint(low, max(high, low + 1), (experts,), generator=generator, device=generator.device)
        found = found if is_wild else found.sort().values
        if not is_wild and (kernel == "library" or mode != "special"):
            found[-1] = m
        return found.to(torch.int32)

    def call(operands: Operands) -> Tensor:
        a, b = operands["a"], operands["b"]
        out: Tensor = grouped_matmul(a, b, operands["offsets"], bias=operands.get("bias"), **end, kernel=kernel)
        return out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        ends = operands["offsets"].clamp(0, m).cummax(0).values.tolist()
        a, b = operands["a"], operands["b"]
        value = torch.zeros((m, n), dtype=torch.float64, device=a.device)
        bound, before, begin = torch.zeros_like(value), torch.zeros_like(value), 0
        for expert, stop in enumerate(ends):
            if stop > begin:
                bias = operands.get("bias")
                bias = bias if bias is None or bias.dim() == 1 else bias[expert]
                sums = sums_of(a[begin:stop], b[expert], precision="highest", is_exact=is_exact)
                rows = finished(
                    sums, out_dtype, bias=bias, alpha=end["alpha"], activation=end["activation"],
                    may_round_before=kernel in ("auto", "loop"),
                )  # fmt: skip
                value[begin:stop], bound[begin:stop], before[begin:stop] = rows
            begin = max(begin, stop)
        return value, bound, before

    shown = ", ".join(f"{key}={value!r}" for key, value in {**end, "kernel": kernel}.items() if value is not None)
    text = f"grouped_matmul({shown}{', wild offsets' if is_wild else ''})"
    return Drawn(
        "grouped", text, places, call, exact, end["activation"], repeats=kernel == "cuda", fills={"offsets": offsets},
        in_graphs=kernel == "cuda",
    )  # fmt: skip


def drawn_scaled(draw: random.Random) -> Drawn:
    """A call of `scaled_matmul`."""
    from constrint.kernels.gemm.scaled import scaled_matmul

    dtype = torch.float8_e4m3fn
    m, n, k = sizes_drawn(draw)
    if draw.random() < 0.8:
        k = -(-k // 16) * 16
    in_blocks, out_dtype = draw.random() < 0.5, draw.choice((*HALVES, torch.float32))
    along, lies = -(-k // 128), draw.random() < 0.3
    scales = ((m, along), (along, -(-n // 128))) if in_blocks else ((m, 1), (1, n))
    aligned = draw.random() < 0.8
    places = {
        "a": Place.drawn(draw, (m, k), dtype, aligned=aligned),
        "b": Place.drawn(draw, (k, n), dtype, by_columns=draw.random() < 0.9, aligned=aligned),
        "scale_a": Place.drawn(draw, scales[0], torch.float32, by_columns=lies, plain=draw.random() < 0.5),
        "scale_b": Place.drawn(draw, scales[1], torch.float32, by_columns=lies, plain=draw.random() < 0.5),
    }
    if draw.random() < 0.4:
        places["bias"] = Place.drawn(draw, (n,), draw.choice((out_dtype, torch.float32)), plain=True)

    def scale(name: str) -> Any:
        def fill(generator: torch.Generator, mode: str) -> Tensor:
            shape = places[name].shape
            if mode == "ints":
                powers = torch.randint(-2, 3, shape, generator=generator, device=generator.device)
                return torch.exp2(powers.float())
            return torch.rand(shape, generator=generator, device=generator.device) + 0.25

        return fill

    def call(operands: Operands) -> Tensor:
        a, b, of_a, of_b = (operands[name] for name in ("a", "b", "scale_a", "scale_b"))
        return scaled_matmul(a, b, of_a, of_b, operands.get("bias"), out_dtype=out_dtype)

    def exact(operands: Operands, is_exact: bool) -> Exact:
        a, b = operands["a"].double(), operands["b"].double()
        of_a, of_b = operands["scale_a"].double(), operands["scale_b"].double()
        if in_blocks:
            of_a = of_a.repeat_interleave(128, 1)[:, :k]
            of_b = of_b.repeat_interleave(128, 0)[:k].repeat_interleave(128, 1)[:, :n]
        value = (a * of_a) @ (b * of_b)
        size = (a * of_a).abs() @ (b * of_b).abs()
        # Products of scales, and their products with sums, are rounded.
        share = share_of_sums(dtype, "", k) * (not is_exact) + 2.0**-22 + 2.0**-23 * along
        found = Sums(value, share * size + FLUSHED, size)
        return finished(found, out_dtype, bias=operands.get("bias"))

    text = f"scaled_matmul({'blocks' if in_blocks else 'rows'}, out_dtype={out_dtype})"
    fills = {name: scale(name) for name in ("scale_a", "scale_b")}
    return Drawn("scaled", text, places, call, exact, repeats=True, fills=fills)


def drawn_quantised(draw: random.Random) -> Drawn:
    """A call of `quantised_matmul`; the packed weight is made of drawn numbers."""
    from constrint.kernels.gemm.quantised import QuantisedWeight, quantised_matmul

    bits, group, dtype = draw.choice((4, 8)), draw.choice((64, 64, 128, 128, 256)), draw.choice(HALVES)
    _, n, k = sizes_drawn(draw)
    m = draw.choice((1, 1, 2, 3, 7, 8, 9, 15, 16, 17, 40))
    groups, top = -(-k // group), 1 << bits
    places = {
        "x": Place.drawn(draw, (m, k), dtype, plain=draw.random() < 0.4),
        "numbers": Place((n, k), torch.int32, (0, 1)),
        "scales": Place((n, groups), torch.float32, (0, 1)),
        "zeros": Place((n, groups), torch.int32, (0, 1)),
    }
    if draw.random() < 0.4:
        places["bias"] = Place.drawn(draw, (n,), draw.choice((dtype, torch.float32)), plain=True)
    held: dict[str, Any] = {}

    def number(generator: torch.Generator, mode: str) -> Tensor:
        return torch.randint(0, top, (n, k), generator=generator, device=generator.device).to(torch.int32)

    def zero(generator: torch.Generator, mode: str) -> Tensor:
        return torch.randint(0, top, (n, groups), generator=generator, device=generator.device).to(torch.int32)

    def scale(generator: torch.Generator, mode: str) -> Tensor:
        if mode == "ints":
            powers = torch.randint(-3, 2, (n, groups), generator=generator, device=generator.device)
            return torch.exp2(powers.float())
        return torch.rand((n, groups), generator=generator, device=generator.device) * 0.05 + 0.01

    def weight_of(operands: Operands) -> QuantisedWeight:
        key = tuple(operands[name].data_ptr() for name in ("numbers", "scales", "zeros"))
        stamp = tuple(operands[name]._version for name in ("numbers", "scales", "zeros"))
        if held.get("key") != (key, stamp):
            numbers, scales, zeros = (operands[name] for name in ("numbers", "scales", "zeros"))
            held["key"] = key, stamp
            held["weight"] = QuantisedWeight.of(numbers, scales, zeros, bits=bits, group=group, dtype=dtype)
        weight: QuantisedWeight = held["weight"]
        return weight

    def call(operands: Operands) -> Tensor:
        return quantised_matmul(operands["x"], weight_of(operands), operands.get("bias"))

    def exact(operands: Operands, is_exact: bool) -> Exact:
        of_group = torch.arange(k, device=operands["x"].device) // group
        scales = operands["scales"].to(dtype).double()[:, of_group]
        wide = (operands["numbers"].double() - operands["zeros"].double()[:, of_group]) * scales
        if m > 16:
            wide = wide.to(dtype).double()
        sums = sums_of(operands["x"].double(), wide.T, precision="", is_exact=False)
        share = 2.0**-22 + k * 2.0**-24
        narrow = Sums(sums.exact, share * sums.size + FLUSHED, sums.size)
        return finished(narrow, dtype, bias=operands.get("bias"), may_round_before=m > 16)

    fills: dict[str, Any] = {"numbers": number, "scales": scale, "zeros": zero}
    text = f"quantised_matmul(bits={bits}, group={group})"
    return Drawn("quantised", text, places, call, exact, repeats=m <= 16, fills=fills, in_graphs=False)


#: Epilogues as texts: of the sum, a row, a column and a matrix.
TRACED = (
    "gelu(acc + row)",
    "silu(acc + row) * full",
    "acc * column + row",
    "(acc * column) * full",
    "relu(acc) + full",
)


def drawn_traced(draw: random.Random) -> Drawn:
    """A call of `matmul` with an epilogue of its own."""
    from constrint.kernels.gemm.op import matmul

    kernel, text = draw.choice(("auto", "auto", "cuda")), draw.choice(TRACED)
    dtype = draw.choice((*HALVES, *HALVES, torch.float32)) if kernel == "auto" else draw.choice(HALVES)
    m, n, k = sizes_drawn(draw)
    aligned = kernel == "cuda" or draw.random() < 0.5
    places = {
        "a": Place.drawn(draw, (m, k), dtype, aligned=aligned),
        "b": Place.drawn(draw, (k, n), dtype, by_columns=draw.random() < 0.6, aligned=aligned),
    }
    shapes = {"row": (n,), "column": (m, 1), "full": (m, n)}
    names = [name for name in shapes if name in text]
    for name in names:
        places[name] = Place.drawn(draw, shapes[name], dtype, plain=name == "column" or draw.random() < 0.5)

    def call(operands: Operands) -> Tensor:
        more = {name: operands[name] for name in names}
        return matmul(operands["a"], operands["b"], epilogue=text, operands=more, kernel=kernel)

    def exact(operands: Operands, is_exact: bool) -> Exact:
        sums = sums_of(operands["a"], operands["b"], precision="highest", is_exact=is_exact)
        row, column, full = (operands[name].double() if name in operands else None for name in shapes)
        error = sums.error + 2.02 * HALF_UNIT[dtype] * sums.exact.abs() + 2 * LEAST_HALF[dtype]
        z, terms = sums.exact, sums.size
        if column is not None:
            z, error, terms = z * column, error * column.abs(), terms * column.abs()
        if row is not None:
            z, terms = z + row, terms + row.abs()
        error = error + 2.0**-21 * terms + FLUSHED
        activation = text.partition("(")[0]
        value, bound = activated(z, error, activation if activation in NAMES else None, dtype)
        if full is not None:
            times = "*" in text.rpartition("full")[0][-4:]
            value, bound = (value * full, bound * full.abs()) if times else (value + full, bound)
            bound = bound + 2.0**-21 * (value.abs() + full.abs())
        # Where it is not finite, the order of operations says whether it is infinite or NaN.
        return value, torch.where(value.isfinite(), bound, 0.0), torch.where(value.isfinite(), 0.0, torch.nan)

    return Drawn("traced", f"matmul(epilogue={text!r}, kernel={kernel!r})", places, call, exact)


def drawn_linear(draw: random.Random) -> Drawn:
    """A layer: activation(x @ weight^T + bias), and its gradients."""
    from constrint.kernels.gemm.linear import by_torch, end_of, linear

    dtype = draw.choice((*HALVES, *HALVES, torch.float32))
    m, n, k = sizes_drawn(draw)
    activation = draw.choice((None, *NAMES))
    precision = draw.choice(("highest", "high")) if dtype == torch.float32 else "highest"
    lead = draw.choice(((), (), (2,)))
    places = {
        "a": Place.drawn(draw, (*lead, m, k), dtype, plain=draw.random() < 0.7),
        "weight": Place.drawn(draw, (n, k), dtype, plain=draw.random() < 0.8),
    }
    if draw.random() < 0.6:
        places["bias"] = Place.drawn(draw, (n,), dtype, plain=True)
    end = {"alpha": 1.0, "beta": 0.0, "activation": activation}

    def turned(operands: Operands) -> dict[str, Tensor]:
        found = {name: t for name, t in operands.items() if name != "weight"}
        return {**found, "b": operands["weight"].t()}

    def call(operands: Operands) -> Tensor:
        tensors = operands["a"], operands["weight"], operands.get("bias")
        out = linear(*tensors, end_of(activation))
        return by_torch(*tensors, activation) if out is None else out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        sums = sums_of(operands["a"], operands["weight"].t(), precision=precision, is_exact=is_exact)
        return finished(sums, dtype, bias=operands.get("bias"), activation=activation, may_round_before=True)

    def gradient(operands: Operands, g: Tensor, is_exact: bool) -> dict[str, tuple[Tensor, Tensor]]:
        found = gradient_of(end, dtype, precision)(turned(operands), g, is_exact)
        value, bound = found.pop("b")
        return {**found, "weight": (value.t(), bound.t())}

    grads = tuple(places) if draw.random() < 0.6 else ()
    text = f"linear(activation={activation!r}){' and gradients' if grads else ''}"
    return Drawn(
        "linear", text, places, call, exact, activation, precision, grads=grads, gradient=gradient, in_graphs=not grads
    )


def values_for(drawn: Drawn, name: str, mode: str, generator: torch.Generator, device: Any) -> Tensor:
    """Values of one operand."""
    if name in drawn.fills:
        return drawn.fills[name](generator, mode)
    return values_of(mode, drawn.places[name], generator, device)
