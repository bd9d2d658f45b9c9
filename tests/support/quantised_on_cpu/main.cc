// The quantised GEMM on the CPU, one block after the other in a given order. Gives how many loads were of no operand.
#include "kernel.cc"

extern "C" int run(
    int blocks, const int* order, const uint4* weights, const unsigned* scales, const unsigned short* x, out_t* out,
    const void* bias, const int* numbers, unsigned mask, long long x_stride, long long out_stride,
    const unsigned char* const* operands) {
  const auto kernel = [&] {
    FUNCTION(
        weights, scales, x, out, bias, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6],
        mask, x_stride, out_stride);
  };
  gridDim = {blocks, 1, 1}, strays = 0;
  for (int i = 0; i < 8; ++i) spans[i / 2][i % 2] = operands[i];
  for (int i = 0; i < blocks; ++i) {
    blockIdx = {order[i], 0, 0};
    fibers::run_block(kernel, kThreads);
  }
  return strays;
}
