"""Parts of a step of the kernel for many sequences that can be left out, to see what a step waits for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.rnn.wgmma.shape import CELLS_FILES, CELLS_SOURCE, SOURCE
from constrint.select.spec import Launch


class Cut(NamedTuple):
    """A part that is left out: its name, the file that it stands in, its text there, and what stands there instead."""

    name: str
    file: str
    text: str
    instead: str


CUTS = (
    Cut("waiting for the exchange", "product.cuh", "if (!__any_sync(0xFFFFFFFFu, waits)) break;", "break;"),
    Cut(
        "reading the exchange",
        "product.cuh",
        "if (source.exists) v = Source::load(step, kChunkNumber * kChunk + i);",
        "v.x = threadIdx.x;",
    ),
    Cut(
        "matrix instructions",
        "product.cuh",
        "      wgmma(sums, window[kChunkNumber % kSlots][i], weights + descriptor_offset(kFirst + i), kFirst + i > 0);",
        "      const uint4& v = window[kChunkNumber % kSlots][i];\n"
        "      if (kFirst + i == 0) {\n"
        "#pragma unroll\n"
        "        for (int j = 0; j < kSums; ++j) sums[j] = 0.0f;\n"
        "      }\n"
        "      sums[i % kSums] += __uint_as_float(v.x ^ v.y ^ v.z ^ v.w);",
    ),
    Cut("special functions", "ptx.cuh", '  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));', "  y = x * 0.5f;"),
    Cut("inputs", "forward.cu", "    fetch(t + 1);", ""),
    Cut(
        "outputs",
        "forward.cu",
        "      const bool is_row = row[i].sequence >= 0;",
        "      const bool is_row = row[i].sequence >= batch;",
    ),
    Cut("fences", "forward.cu", "if (t % FENCE == 0) fence_of_grid();", ""),
)


def without(cut: Cut, launches: Sequence[Launch]) -> list[Launch]:
    """The launches with a part of the loop left out, compiled of a copy of the sources.

    Raises:
        ValueError: When the part's text does not stand there once any more.
    """
    loop = launches[-1]
    assert isinstance(loop, CudaLaunch)
    with tempfile.TemporaryDirectory(prefix="parts_") as name:
        folder = Path(name)
        shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
        for file in CELLS_FILES:
            shutil.copy(CELLS_SOURCE / file, folder)
        whole = (folder / cut.file).read_text(encoding="utf-8")
        if whole.count(cut.text) != 1:
            raise ValueError(f"{cut.file} has the text of {cut.name!r} {whole.count(cut.text)} times, not once.")
        (folder / cut.file).write_text(whole.replace(cut.text, cut.instead), encoding="utf-8")
        forward = (SOURCE / "forward.cu").read_text(encoding="utf-8")
        text = loop.source.text.replace(forward, (folder / "forward.cu").read_text(encoding="utf-8"))
        source = replace(loop.source, text=text, folders=(folder,), is_settled=False)
        shorter = replace(loop, source=source)
        _ = shorter.binary  # compiled while the copy is there
    return [*launches[:-1], shorter]
