"""Kernel Tuner's first example, a vector sum, by its own `tune_params`; the CUDA source is this file's.

constrint solve --gpu h200 --kernel examples/vector_add/vector_add.py:SPEC
"""

from constrint.kernels.launch.cuda import spec_from_tune_params

SOURCE = """
extern "C" __global__ void vector_add(float* sum, const float* left, const float* right, int n) {
  const int place = block_size_x * blockIdx.x + threadIdx.x;
  if (place < n) sum[place] = left[place] + right[place];
}
"""

SPEC = spec_from_tune_params(
    "vector_add",
    SOURCE,
    "n",
    {"sum": ("float32", "n"), "left": ("float32", "n"), "right": ("float32", "n"), "n": "int32"},
    {"block_size_x": [128 + 64 * i for i in range(15)]},
    sizes={"n": 10_000_000},
    reference=lambda given: {"sum": given["left"].double() + given["right"].double()},
)
