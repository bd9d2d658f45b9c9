"""Kernel Tuner's convolution example by its own `tune_params` and grid; the CUDA source is `convolution.cu` here.

constrint solve --gpu h200 --kernel examples/convolution/convolution.py:SPEC
"""

from pathlib import Path

from constrint.kernels.launch.cuda import spec_from_tune_params


def reference(given):
    import torch

    width, height = given["width"], given["height"]
    image = given["image"].double().view(1, 1, height + 16, width + 16)
    return {"output": torch.nn.functional.conv2d(image, given["d_filter"].double().view(1, 1, 17, 17)).view(-1)}


SPEC = spec_from_tune_params(
    "convolution",
    Path(__file__).parent / "convolution.cu",
    ("width", "height"),
    {
        "output": ("float32", "width * height"),
        "image": ("float32", "(width + 16) * (height + 16)"),
        "width": "int32",
        "height": "int32",
    },
    {
        "block_size_x": [16 * i for i in range(1, 9)],
        "block_size_y": [2**i for i in range(6)],
        "tile_size_x": [2**i for i in range(3)],
        "tile_size_y": [2**i for i in range(3)],
    },
    sizes={"width": 4096, "height": 4096},
    restrictions=["64 <= block_size_x * block_size_y <= 1024"],
    grid_div_x=["block_size_x", "tile_size_x"],
    grid_div_y=["block_size_y", "tile_size_y"],
    cmem_args={"d_filter": ("float32", 17 * 17)},
    smem_bytes="4 * (block_size_x * tile_size_x + 16) * (block_size_y * tile_size_y + 16)",
    registers="24 + 2 * tile_size_x * tile_size_y",
    operations="2 * 17 * 17 * width * height",
    reference=reference,
)
