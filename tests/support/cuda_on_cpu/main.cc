// The kernel beside this file, one block after the other in a given order. Gives how many loads were of no operand.
#include "kernel.cc"

// What the kernel is told, as numpy has it.
struct Told {
  int rows, small, depth, tiles, steps, counters;
  float alpha, beta;
  long long pitch, small_row, small_step, out_row, out_small, source_row, source_column;
};

extern "C" int run(
    int x, int y, const int* order, const unsigned char* large, const unsigned char* small, out_t* c, const void* bias,
    const void* source, sum_t* workspace, unsigned* counters, const Told* sizes, const unsigned char* const* operands,
    int z, const long long* steps) {
  const Told& s = *sizes;
  const auto kernel = [&] {
    skinny(
        large, small, c, bias, source, workspace, counters, s.rows, s.small, s.depth, s.tiles, s.steps, s.counters, s.alpha,
        s.beta, s.pitch, s.small_row, s.small_step, s.out_row, s.out_small, s.source_row, s.source_column
#if BATCHED
        ,
        steps[0], steps[1], steps[2], steps[3]
#endif
    );
  };
  gridDim = {x, y, z}, strays = 0;
  for (int i = 0; i < 8; ++i) spans[i / 2][i % 2] = operands[i];
  for (int i = 0; i < x * y * z; ++i) {
    blockIdx = {order[i] % x, order[i] / x % y, order[i] / (x * y)};
    fibers::run_block(kernel, kThreads);
  }
  return strays;
}
