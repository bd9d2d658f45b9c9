// The kernels of `kernels/spmv/source/kernel.cu` on a grid of fibers; their arguments are those of a launch, as numbers.
#include "kernel_on_cpu.cu"

#include "arguments.h"

// Returns 1 for a deadlock: threads took turns for too long.
extern "C" int run(int blocks, int threads, unsigned seed, long long most_switches, const long long* arguments) {
  begin(0, arguments, blocks);
#if KERNEL == 0
  const auto crow = taken<const int*>();
  const auto columns = taken<const Column*>();
  const auto values = taken<const Value*>(), x = taken<const Value*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto tiles = taken<const int4*>(), segments = taken<const int4*>();
  const auto firsts = taken<const int*>();
  const auto parts = taken<Sum*>(), sums = taken<Sum*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  int n[6];
  take(n);
  const auto kernel = [&] {
    spmv(crow, columns, values, x, y, source, tiles, segments, firsts, parts, sums, alpha, beta, n[0], n[1], n[2], n[3], n[4],
         n[5]);
  };
#elif KERNEL == 1
  const auto rows = taken<const int4*>();
  const auto parts = taken<const Sum*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto sums = taken<Sum*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  const auto kernel = [&] { spmv_long(rows, parts, y, source, sums, alpha, beta); };
#else
  const auto sums = taken<const Sum*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  int n[2];
  take(n);
  const auto kernel = [&] { spmv_panels(sums, y, source, alpha, beta, n[0], n[1]); };
#endif
  return fibers::run(kernel, blocks, threads, seed, most_switches);
}
