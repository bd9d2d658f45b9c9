"""Products of operands whose rows start anywhere, amid what must not be read; configurations of `gemm.unaligned`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.gemm.wgmma.configs import Config, drawn, named, ranked, spread
from benchmarks.gemm.wgmma.products import KINDS, End, Made, launch_of, made, product_of_made
from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.unaligned.spec import SPECS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import needs_k_major
from constrint.kernels.launch.cuda import CudaLaunch

SPEC = SPECS[0]
#: Sides of products that are checked.
SIDES = (1, 3, 7, 8, 9, 63, 65, 100, 127, 129, 255, 257, 500, 511, 1001, 1024, 2047, 3001)
#: What is timed: sizes and layout.
TIMED = (
    ((3, 50257, 768), "rr"), ((512, 50257, 768), "rr"), ((64, 8193, 8193), "rr"), ((1000, 3001, 2001), "rr"),
    ((2047, 2047, 2047), "rr"), ((2047, 2047, 2047), "rc"), ((2048, 2048, 2047), "rr"), ((4096, 50257, 768), "rr"),
    ((768, 50257, 4096), "cr"), ((4095, 4097, 4096), "rr"), ((5000, 5000, 5001), "rr"),
)  # fmt: skip
LAYOUTS = ("rr", "rc", "cr", "cc")
#: Parameters that are a column each; others have one value.
PARAMS = (
    "tile_m", "tile_n", "num_stages", "raw_stages", "consumers", "by_columns", "in_turns", "turned", "split_k",
    "only_last", "group_m",
)  # fmt: skip


class Places(NamedTuple):
    """Where operands lie: (first element, elements between rows) of A and of B."""

    a: tuple[int, int] = (0, 0)
    b: tuple[int, int] = (0, 0)

    @staticmethod
    def drawn(draw: random.Random) -> Places:
        """Some at random, most of them odd."""
        return Places(*((draw.choice((0, 0, 1, 3, 8, 13)), draw.choice((0, 0, 1, 2, 3, 5, 8))) for _ in range(2)))


class Case(NamedTuple):
    """A product with a configuration."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    config: Config
    end: End = End()
    places: Places = Places()
    pad: int = 16

    @property
    def facts(self) -> dict[str, Any]:
        """As columns of a table."""
        facts = {**dict(zip("mnk", self.shape, strict=True)), "dtype": self.dtype, "layout": self.layout}
        return facts | {"config": named(self.config), **{name: self.config[name] for name in PARAMS}}

    @property
    def words(self) -> str:
        """In a line, with all that a launch depends on."""
        told = (*self.shape, self.dtype, self.layout, *(f"{name}={value}" for name, value in self.config.items()))
        return " ".join(map(str, (*told, self.end, *self.places, self.pad)))

    def made(self, device: str = "cuda") -> Made:
        """The product on a device."""
        given = made(self.shape, self.dtype, self.layout, self.end, pad=self.pad, device=device)
        a, b = odd_operands(self.shape, self.dtype, self.layout, self.places, device)
        return given._replace(a=a, b=b)

    def launch(self, gpu: GpuModel, given: Made) -> CudaLaunch:
        """Its launch."""
        return launch_of(gpu, self.config, given, self.end, is_gathered=True)


def odd_operands(
    shape: tuple[int, int, int], dtype: str, layout: str, places: Places, device: str = "cuda"
) -> tuple[Any, Any]:
    """Random A and B amid what must not be read."""
    import torch

    (m, n, k), kind = shape, getattr(torch, KINDS[dtype])

    def matrix(rows: int, columns: int, is_by_rows: bool, start: int, gap: int) -> Any:
        if not is_by_rows:
            return matrix(columns, rows, True, start, gap).T
        pitch = columns + gap
        if dtype == "int8":
            memory = torch.full((start + rows * pitch + 64,), 113, dtype=kind, device=device)
            values = torch.randint(-99, 99, (rows, columns), dtype=kind, device=device)
        else:
            memory = torch.full((start + rows * pitch + 64,), float("nan"), device=device).to(kind)
            values = torch.randn(rows, columns, device=device).to(kind)
        inside = memory[start : start + rows * pitch].view(rows, pitch)[:, :columns]
        if device != "meta":
            inside.copy_(values)
        return inside

    return matrix(m, k, layout[0] == "r", *places.a), matrix(k, n, layout[1] == "r", *places.b)


def product_of(shape: tuple[int, int, int], dtype: str, layout: str, end: End, places: Places) -> Product:
    """The product as rules and costs see it."""
    return product_of_made(Case(shape, dtype, layout, {}, end, places).made("meta"))


def random_cases(gpu: GpuModel, number: int, seed: int) -> Iterator[Case]:
    """Random products of which an operand is gathered, with random configurations and ends."""
    draw, found = random.Random(seed), 0
    while found < number:
        dtype = draw.choice(("bf16", "fp16", "bf16", "fp16", "tf32", "fp8", "int8"))
        layout = "rc" if needs_k_major(dtype) else draw.choice(LAYOUTS)
        sides = draw.choices(SIDES, k=3)
        shape, end, places = (sides[0], sides[1], sides[2]), End.drawn(draw, dtype), Places.drawn(draw)
        product = product_of(shape, dtype, layout, end, places)
        if SPEC.refusal(gpu, product):
            continue
        try:
            config = drawn(gpu, product, draw, SPEC)
        except (InfeasibleError, ValueError):
            continue
        found += 1
        yield Case(shape, dtype, layout, config, end, places, draw.choice((16, 16, 8, 1)))


def timed_cases(gpu: GpuModel, top: int, dtypes: Sequence[str]) -> list[Case]:
    """What the cost model ranks first for every product: over all, then in every schedule."""
    cases = []
    for (shape, layout), dtype in ((one, dtype) for one in TIMED for dtype in dtypes):
        product = product_of(shape, dtype, layout, End(), Places())
        chosen: dict[str, Config] = {}
        schedules: set[tuple[int, ...]] = set()
        for place, config in enumerate(ranked(gpu, product, 20_000, spec=SPEC)):
            schedule = tuple(config[name] for name in ("consumers", "by_columns", "in_turns", "turned", "raw_stages"))
            if place < top // 3 or schedule not in schedules:
                chosen[str(config)] = config
            schedules.add(schedule)
            if len(chosen) == top:
                break
        cases += [Case(shape, dtype, layout, config) for config in chosen.values()]
    return cases


def explored_cases(gpu: GpuModel, number: int, each: int, seed: int) -> list[Case]:
    """Random products, of which a model may be fitted to: what it ranks first, and others not far off."""
    draw, cases = random.Random(seed), []
    while number:
        sides = [max(1, int(2 ** draw.uniform(4, 13.5))) for _ in range(3)]
        shape, layout = (sides[0], sides[1], max(sides[2], 32)), draw.choice(LAYOUTS)
        product = product_of(shape, "bf16", layout, End(), Places())
        if sides[0] * sides[1] * sides[2] > 2**36 or SPEC.refusal(gpu, product):
            continue
        number -= 1
        for config in spread(gpu, product, each, draw, slowest=2.0, spec=SPEC):
            cases.append(Case(shape, "bf16", layout, config | {"group_m": draw.choice((2, 4, 8, 16))}))
    return cases
