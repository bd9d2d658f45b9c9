"""Products to check the GEMM for short sides: operands of any strides and alignment, poisoned outputs, bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.shape import SkinnyLayout, SkinnyTile, StepSchedule, asked_blocks, vector
from constrint.kernels.gemm.skinny.source import DTYPES, shape_of
from constrint.kernels.gemm.skinny.spec import SPECS, SkinnySpec
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.kernels.gemm.units import WIDEST_BYTES as VECTOR_BYTES
from constrint.solve import enumerate_space

SPEC = SPECS[0]
Config = dict[str, int]

#: Share of checked products with steps under way and neighbours that add first, which the space has not yet.
OTHER_WAYS = 0.3
#: Sizes of checked products.
SHORT_SIDES = (1, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64)
LONG_SIDES = (1, 7, 16, 33, 64, 100, 257, 1000, 1024, 3001, 5000)
DEPTHS = (1, 2, 7, 8, 31, 64, 100, 257, 768, 1024, 1001, 4096, 9999)


class End(NamedTuple):
    """An epilogue: activation(alpha * sum + bias + beta * source).

    Args:
        alpha: Multiplies the product, but for int8.
        bias: Whether a row is added.
        beta: Multiplies a matrix that is added; 0 where there is none.
        activation: Its name, or None.
    """

    alpha: float = 1.0
    bias: bool = False
    beta: float = 0.0
    activation: str | None = None


class Case(NamedTuple):
    """A product and how its operands lie in memory.

    Args:
        shape: (M, N, K).
        dtype: The operands' dtype.
        layout: The order of A and of B: `r` by rows, `c` by columns.
        gaps: Elements between lines of A, B and C.
        offsets: Elements before the first one of A, B and C, counted from a multiple of 16 bytes.
        is_out_by_columns: Whether C lies by columns.
    """

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    gaps: tuple[int, int, int] = (0, 0, 0)
    offsets: tuple[int, int, int] = (0, 0, 0)
    is_out_by_columns: bool = False


PLAIN = End()


class Added(NamedTuple):
    """Operands of an epilogue: a bias (N,), a matrix (M, N), or None."""

    bias: Any = None
    source: Any = None


NOTHING = Added()


class Drawn(NamedTuple):
    """A product to check, and how."""

    case: Case
    end: End
    layout: SkinnyLayout
    config: Config
    blocks: int


@dataclass(frozen=True)
class Made:
    """C in the midst of memory that nobody may write to.

    Args:
        out: C.
        whole: All memory around it.
    """

    out: Any
    whole: Any

    def poison(self) -> None:
        """Put into C and around it what no product is."""
        self.whole.fill_(float("nan") if self.whole.is_floating_point() else -1)

    def is_kept(self) -> bool:
        """Whether nothing but C was written."""
        rest = self.whole.clone()
        rest.as_strided(self.out.shape, self.out.stride(), self.out.storage_offset()).fill_(
            float("nan") if rest.is_floating_point() else -1
        )
        return bool(rest.isnan().all() if rest.is_floating_point() else (rest == -1).all())


def operands(case: Case, device: str, *, is_filled: bool = True) -> tuple[Any, Any, Made]:
    """A and B with NaN between their lines where the dtype has it, and C, poisoned; nothing is set if not filled."""
    import torch

    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp8": torch.float8_e4m3fn}
    outs = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int32}
    kind = kinds.get(case.dtype, torch.int8)

    def lines(rows: int, columns: int, gap: int, offset: int, of: Any) -> tuple[Any, Any]:
        pitch = columns + gap
        whole = torch.empty(offset + rows * pitch + VECTOR_BYTES, dtype=of, device=device)
        return whole.as_strided((rows, columns), (pitch, 1), offset), whole

    def laid(number: int, rows: int, columns: int, *, is_by_rows: bool, of: Any) -> tuple[Any, Any]:
        size = (rows, columns) if is_by_rows else (columns, rows)
        view, whole = lines(*size, case.gaps[number], case.offsets[number], of)
        return (view if is_by_rows else view.T), whole

    m, n, k = case.shape
    a, around_a = laid(0, m, k, is_by_rows=case.layout[0] == "r", of=kind)
    b, around_b = laid(1, k, n, is_by_rows=case.layout[1] == "r", of=kind)
    c, around_c = laid(2, m, n, is_by_rows=not case.is_out_by_columns, of=outs.get(case.dtype, torch.float32))
    made = Made(c, around_c)
    if is_filled:
        for view, whole in ((a, around_a), (b, around_b)):
            _fill(view, whole, case.dtype)
        made.poison()
    return a, b, made


def added_of(case: Case, end: End, device: str) -> Added:
    """Draw the epilogue's operands, with elements like C's or in fp32; a matrix has the layout and the gaps of C."""
    import torch

    m, n, _ = case.shape
    bias = torch.randn(n, device=device) if end.bias else None
    if end.beta == 0.0:
        return Added(bias)
    kind = torch.float32 if case.dtype in ("tf32", "fp8") else torch.float16
    source = (
        torch.randn(n, m + 3, device=device).to(kind).T[:m]
        if case.is_out_by_columns
        else torch.randn(m, n, device=device).to(kind)
    )
    return Added(bias, source)


def sides_of(case: Case, a: Any, b: Any, out: Any) -> Any:
    """A case as the kernel sees it."""
    from constrint.kernels.gemm.skinny.launch import SkinnyOperands

    return SkinnyOperands.of(a, b, out, turned=case.shape[1] >= case.shape[0])


def launch_of_case(
    gpu: GpuModel,
    case: Case,
    config: Config,
    tensors: tuple[Any, Any, Made],
    blocks: int = 0,
    end: End = PLAIN,
    added: Added = NOTHING,
) -> Any:
    """Return the launch of a case with `blocks` blocks, or with the configuration's number."""
    from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
    from constrint.kernels.gemm.skinny.launch import launch_of

    a, b, made = tensors
    sides = sides_of(case, a, b, made.out)
    dealt = dealt_of(gpu, config, shape_of(config, case.dtype, sides.layout), sides.shape, blocks)
    source = None if added.source is None else added.source[None]
    epilogue = Epilogue(added.bias, source, end.alpha, end.beta, end.activation)
    call = GemmCall(a[None], b[None], made.out[None], Machine.of(gpu), epilogue, "ieee")
    return launch_of(gpu, config, case.dtype, sides, dealt, call)


def _fill(view: Any, whole: Any, dtype: str) -> None:
    """Random numbers, and around them bytes that are NaN, or 127 as int8."""
    import torch

    if dtype in ("fp8", "int8"):
        whole.view(torch.uint8).fill_(0x7F)
        numbers = (
            torch.randint(-99, 99, view.shape, dtype=torch.int8, device=view.device)
            if dtype == "int8"
            else torch.randn(view.shape, device=view.device).to(view.dtype)
        )
        where = whole.view(torch.uint8).as_strided(view.shape, view.stride(), view.storage_offset())
        where.copy_(numbers.view(torch.uint8))
        return
    whole.fill_(float("nan"))
    view.copy_(torch.randn(view.shape, device=view.device))


@dataclass(frozen=True)
class Expected:
    """The product in double precision, and what rounding depends on.

    Args:
        exact: The result.
        size: The product of the operands' sizes, and of what is added.
        spread: The root of the sum of squared terms: about the size of sums on their way.
        dtype: The operands' dtype.
        approximates: Whether an activation may miss by a sixteenth of a unit besides (`test_activations.py`).
    """

    exact: Any
    size: Any
    spread: Any
    dtype: str
    approximates: bool = False

    @staticmethod
    def of(a: Any, b: Any, dtype: str, end: End = PLAIN, added: Added = NOTHING) -> Expected:
        """Apply the epilogue to a @ b."""
        from constrint.kernels.gemm.reference import ACTIVATIONS

        x, y = a.double(), b.double()
        factor = 1.0 if dtype == "int8" else end.alpha
        exact, size = factor * (x @ y), abs(factor) * (x.abs() @ y.abs())
        for more, scale in ((added.bias, 1.0), (added.source, end.beta)):
            if more is not None:
                exact, size = exact + scale * more.double(), size + abs(scale) * more.double().abs()
        if end.activation is not None:
            exact = ACTIVATIONS[end.activation](exact)
        approximates = end.activation is not None and dtype == "bf16"
        return Expected(exact, size, abs(factor) * (x.square() @ y.square()).sqrt(), dtype, approximates)

    def error_of(self, made: Made, chain: int) -> float:
        """The largest error as a share of what rounding allows; infinite where something else was written.

        Args:
            made: C and what is around it.
            chain: How many additions a sum sees, one after the other.
        """
        if not made.is_kept():
            return float("inf")
        step = {"fp16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-23, "fp8": 2.0**-23, "int8": 0.0}[self.dtype]
        if self.dtype == "int8":
            allowed = self.size * 0 + 0.25
        else:
            # Matrix instructions cut sums off instead of rounding them, which drifts: up to a step of each addition. No
            # activation is steeper than 1.2, and its own rounding is that of a few steps.
            rounded = 1.2 * (2.0**-21 * self.size + 2.0**-23 * chain * self.spread)
            step = step * 1.125 if self.approximates else step
            allowed = step * self.exact.abs() + rounded + (2.0**-24 if self.dtype == "fp16" else 1e-30)
        error = float(((made.out.double() - self.exact).abs() / allowed).max().item())
        return error if error == error else float("inf")


def drawn_products(gpu: GpuModel, number: int, seed: int, *, each: int = 2) -> Iterator[Drawn]:
    """Random products; configurations are drawn from a few for each kind of product, so that few are compiled."""
    from constrint.kernels.gemm.operands import product_of

    draw = random.Random(seed)
    pools: dict[object, list[Config]] = {}
    found = 0
    while found < number:
        case = _drawn_case(draw)
        a, b, made = operands(case, "cpu", is_filled=False)
        which = product_of(a[None], b[None], None, None, made.out.dtype, is_three_pass=False)
        sides = sides_of(case, a, b, made.out)
        short = min(case.shape[:2])
        key = (case.dtype, sides.layout, case.shape[1] >= case.shape[0], (short - 1).bit_length())
        every = columns_of(gpu, which)
        if not len(every["tile_m"]):
            continue  # sums of 64 rows leave no registers for vectors that begin anywhere
        found += 1
        if key not in pools:
            pools[key] = [config_at(every, draw.randrange(len(every["tile_m"]))) for _ in range(each)]
        able = [config for config in pools[key] if not _broken(gpu, which, config)]
        config = draw.choice(able) if able else config_at(every, draw.randrange(len(every["tile_m"])))
        if draw.random() < OTHER_WAYS:
            config = config | {"num_stages": draw.choice([1, 2]), "fan_in": draw.choice([0, 2, 5])}
        dealt = dealt_of(gpu, config, shape_of(config, case.dtype, sides.layout), sides.shape)
        blocks = draw.choice([0, dealt.tiles, 2 * dealt.tiles, gpu.device.sm_count, draw.randint(1, 999), 1])
        yield Drawn(case, _drawn_end(draw, case.dtype), sides.layout, config, min(blocks, dealt.units))


def _broken(gpu: GpuModel, which: Any, config: Config) -> bool:
    return any(not rule.holds(config) for rule in SPEC.product_problem(gpu, which).constraints)


def _drawn_end(draw: random.Random, dtype: str) -> End:
    alpha = draw.choice([1.0, 0.5, -3.0])
    if dtype == "int8" or draw.random() < 0.5:
        return End(alpha)
    return End(alpha, draw.random() < 0.5, draw.choice([0.0, 1.0, -2.0]), draw.choice([None, "relu", "gelu", "silu"]))


def _drawn_case(draw: random.Random) -> Case:
    dtype, layout = draw.choice(list(DTYPES)), draw.choice(["rr", "rc", "cr", "cc"])
    sides = draw.choice(SHORT_SIDES), draw.choice(LONG_SIDES)
    m, n = sides if draw.random() < 0.6 else sides[::-1]
    k = draw.choice(DEPTHS)
    vector = VECTOR_BYTES // ELEMENT_BYTES[dtype]
    lengths = (k if layout[0] == "r" else m, n if layout[1] == "r" else k)
    # Rows at multiples of 16 bytes, without gaps, or anyhow.
    gap_a, gap_b = (draw.choice([-length % vector, 0, draw.randint(0, 9)]) for length in lengths)
    a, b, c = (draw.choice([0, 0, draw.randint(1, vector)]) for _ in range(3))
    return Case((m, n, k), dtype, layout, (gap_a, gap_b, draw.choice([0, 0, 3])), (a, b, c), draw.random() < 0.25)


def _launch_of(gpu: GpuModel, one: Drawn, device: str) -> tuple[Any, Any, Any]:
    """The launch of a drawn product, its operands and C, and what is added."""
    tensors = operands(one.case, device, is_filled=device != "cpu")
    added = added_of(one.case, one.end, device)
    return launch_of_case(gpu, one.case, one.config, tensors, one.blocks, one.end, added), tensors, added


def wrong_of(gpu: GpuModel, one: Drawn) -> tuple[str, float]:
    """Return the fault of a product, if any, and its error as a share of the bound on rounding.

    A second launch sees whether counters were reset, and sums kept their order.
    """
    import torch

    launch, (a, b, made), added = _launch_of(gpu, one, "cuda")
    layout = sides_of(one.case, a, b, made.out).layout
    if layout != one.layout:
        return f"WRONG: it lies as {layout}", 0.0
    found = []
    for _ in range(2):
        launch.run()
        torch.cuda.synchronize()
        found.append(made.out.clone())
    if not torch.equal(found[0].nan_to_num(0), found[1].nan_to_num(0)):
        return "WRONG: two launches differ", 0.0
    chain = chain_of(one.config, one.case.dtype, layout, a.shape[1])
    off = Expected.of(a, b, one.case.dtype, one.end, added).error_of(made, chain)
    return (f"WRONG: {off:.3g} of what rounding allows" if off > 1 else ""), off


def columns_of(gpu: GpuModel, product: Product, spec: SkinnySpec = SPEC) -> dict[str, NDArray[np.int64]]:
    """Every valid configuration, as columns."""
    problem = spec.product_problem(gpu, product)
    columns, _ = enumerate_space(problem).project(list(problem.variables))
    return dict(columns)


def config_at(columns: Mapping[str, NDArray[Any]], row: int) -> Config:
    """One of them."""
    return {name: int(column[row]) for name, column in columns.items()}


def dealt_of(
    gpu: GpuModel, config: Mapping[str, int], shape: SkinnyTile, sizes: tuple[int, int, int], blocks: int = 0
) -> StepSchedule:
    """Return how a (rows, small, depth) product is distributed over blocks: the configuration's number, or `blocks`."""
    asked = blocks or asked_blocks(config, -(-sizes[0] // shape.rows), gpu.device.sm_count)
    return StepSchedule.of(shape, config, sizes, asked)


def chain_of(config: Mapping[str, int], dtype: str, layout: SkinnyLayout, depth: int) -> int:
    """Additions that a sum sees one after the other, at most: a lane's along K, and those of lanes and warps."""
    shape = shape_of(config, dtype, layout)
    lines = -(-depth // config["tile_k"]) * int(shape.unroll)
    return lines * (2 if config["mma"] else vector(dtype)) + int(shape.warps_k) + 2
