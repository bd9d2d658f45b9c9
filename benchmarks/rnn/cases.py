"""Which layers are timed beside their peers: those of the table of targets, a sweep, and those where cuDNN may win."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

SIXTEEN_BITS, THIRTY_TWO_BITS = ("fp16", "bf16"), ("fp32", "tf32")
ALL = (*SIXTEEN_BITS, *THIRTY_TWO_BITS)
BATCHES, DIMS, TIMES = (1, 8, 16, 64, 256), (64, 128, 256, 512, 768, 1024, 2048), (35, 128, 1024)
#: Where cuDNN keeps the weights of an LSTM on chip: multiples of 128 units in fp16, and small layers.
ON_CHIP, SMALL = tuple(range(256, 1025, 128)), (64, 128)


@dataclass(frozen=True)
class Sizes:
    """One layer, and the dtypes in which it is timed.

    Args:
        cell: A key of `CELLS`.
        heads: Heads.
        dim: Units of a head.
        batch: Sequences.
        time: Steps.
        dtypes: `fp16`, `bf16`, `fp32` (no tf32 anywhere), `tf32`.
    """

    cell: str
    heads: int
    dim: int
    batch: int = 16
    time: int = 1024
    dtypes: tuple[str, ...] = SIXTEEN_BITS

    def __str__(self) -> str:
        """Render as `lstm-1x768-b16-t1024`."""
        return f"{self.cell}-{self.heads}x{self.dim}-b{self.batch}-t{self.time}"


def table() -> Iterator[Sizes]:
    """The layers for which there are targets; those of two layers are timed as one."""
    yield Sizes("lstm", 12, 64)
    for dim in (64, 256, 512, 768, 1024, 2048, 2688):
        yield Sizes("lstm", 1, dim)
    for batch in (1, 64, 256):
        yield Sizes("lstm", 1, 768, batch)
    for dim in (512, 768, 1024):
        yield Sizes("gru", 1, dim)
    for dim in (650, 1500):
        yield Sizes("lstm", 1, dim, 20, 35, THIRTY_TWO_BITS)
    yield Sizes("gru", 1, 256, 256, 100, THIRTY_TWO_BITS)


def sweep() -> Iterator[Sizes]:
    """Every batch, size and number of steps, LSTM and GRU; the long ones last."""
    for time, cell, batch, dim in product(TIMES, ("lstm", "gru"), BATCHES, DIMS):
        yield Sizes(cell, 1, dim, batch, time, ALL)


def cudnn() -> Iterator[Sizes]:
    """What the table of cuDNN's times is made of: what it keeps on chip, small fp32 layers, and a handful of others."""
    for time in (1024, 35, 128):
        for batch, dim in product((16, 64, 8, 32, 128), ON_CHIP):
            yield Sizes("lstm", 1, dim, batch, time, ("fp16",))
        for cell, batch, dim in product(("lstm", "gru"), (16, 64, 1), SMALL):
            yield Sizes(cell, 1, dim, batch, time, ("fp16", *THIRTY_TWO_BITS))
    for time, dim in product((35, 128), (256, 512, 650, 1024, 1500)):
        for cell, batch in product(("lstm", "gru"), (16, 20, 64, 256)):
            yield Sizes(cell, 1, dim, batch, time, THIRTY_TWO_BITS)
    for dim in (256, 512, 1024):
        yield Sizes("elman", 1, dim, 16, 1024, ("fp16",))


LISTS = {"table": table, "sweep": sweep, "cudnn": cudnn}
