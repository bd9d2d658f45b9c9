"""Which layers are timed beside their peers: those of the table of targets, a sweep, and those where cuDNN may win.

Every list has the most important layers first: a run that is cut short has timed those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

SIXTEEN_BITS, THIRTY_TWO_BITS = ("fp16", "bf16"), ("fp32", "tf32")
ALL = (*SIXTEEN_BITS, *THIRTY_TWO_BITS)
#: Of a sweep, the most usual ones first.
BATCHES, DIMS, TIMES = (16, 64, 1, 256, 8), (64, 128, 256, 512, 768, 1024, 2048), (1024, 128, 35)
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
        layers: Layers of a module, one after the other.
        backends: Back-ends of `rnn` that are timed; all where there are none.
    """

    cell: str
    heads: int
    dim: int
    batch: int = 16
    time: int = 1024
    dtypes: tuple[str, ...] = SIXTEEN_BITS
    layers: int = 1
    backends: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a layer in a table."""
        return tuple(map(str, (self.cell, self.heads, self.dim, self.layers, self.batch, self.time)))

    @property
    def peak_bytes(self) -> int:
        """About what timing it takes: projected inputs in 32 bits, what a pass makes of them, a copy for each row."""
        return 16 * 4 * 4 * self.batch * self.time * self.heads * self.dim

    def __str__(self) -> str:
        """Render as `lstm-1x768-b16-t1024`, or `lstm-1x768-b16-t1024-l2` of two layers."""
        layers = f"-l{self.layers}" if self.layers > 1 else ""
        return f"{self.cell}-{self.heads}x{self.dim}-b{self.batch}-t{self.time}{layers}"


def table() -> Iterator[Sizes]:
    """The layers for which there are targets."""
    for dim in (768, 1024, 512, 256):
        yield Sizes("lstm", 1, dim)
    yield Sizes("lstm", 12, 64)
    for dim in (650, 1500):
        yield Sizes("lstm", 1, dim, 20, 35, THIRTY_TWO_BITS, layers=2)
    yield Sizes("gru", 1, 256, 256, 100, THIRTY_TWO_BITS)
    for dim in (768, 1024, 512):
        yield Sizes("gru", 1, dim)
    for batch in (1, 64, 256):
        yield Sizes("lstm", 1, 768, batch)
    for dim in (2048, 2688, 64):
        yield Sizes("lstm", 1, dim)
    for dim in (650, 1500):
        yield Sizes("lstm", 1, dim, 20, 35, THIRTY_TWO_BITS)


def sweep() -> Iterator[Sizes]:
    """Every batch, size and number of steps, LSTM and GRU, by our CUDA kernels and by what `auto` takes."""
    every = product(range(len(TIMES)), range(len(BATCHES)), ("lstm", "gru"), DIMS)
    for time, batch, cell, dim in sorted(every, key=lambda one: (one[0] + one[1], one[0], one[2] == "gru")):
        yield Sizes(cell, 1, dim, BATCHES[batch], TIMES[time], ALL, backends=("cuda", "auto"))


def whole() -> Iterator[Sizes]:
    """The table of targets, and then the rest of the sweep; what is in both is timed once, in every dtype."""
    swept = {sizes.key: sizes for sizes in sweep()}
    for sizes in table():
        yield replace(sizes, dtypes=swept.pop(sizes.key, sizes).dtypes)
    yield from swept.values()


def cudnn() -> Iterator[Sizes]:
    """Layers of the table of cuDNN's times: those that it keeps on chip, small fp32 layers, and a handful of others."""
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


LISTS = {"table": table, "sweep": sweep, "whole": whole, "cudnn": cudnn}
