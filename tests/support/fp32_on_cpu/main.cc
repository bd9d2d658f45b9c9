// The kernel of `gemm/fp32/source/kernel.cu` on a grid of fibers; its arguments are those of a launch, as numbers.
#include "instructions.cuh"

#include "kernel_on_cpu.cu"

#include "arguments.h"

// Returns 1 for a deadlock: threads took turns for too long.
extern "C" int run(int mistake, int blocks, unsigned seed, long long most_switches, const long long* arguments) {
  begin(mistake, arguments, blocks);
  arrivals.clear(), from_registers.clear();
  const TensorMap rows_map = *taken<const TensorMap*>(), columns_map = *taken<const TensorMap*>();
  const auto out = taken<out_t*>();
  const auto bias = taken<const void*>(), source = taken<const void*>();
  const auto partials = taken<float*>();
  const auto counters = taken<unsigned*>();
  const auto rows = taken<const float*>(), columns = taken<const float*>();
  int sizes[8];
  take(sizes);
  long long strides[7];
  take(strides);
  const auto alpha = taken<float>(), beta = taken<float>();
  const auto kernel = [&] {
    fp32_gemm(rows_map, columns_map, out, bias, source, partials, counters, rows, columns, sizes[0], sizes[1], sizes[2],
              sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], strides[0], strides[1], strides[2], strides[3],
              strides[4], strides[5], strides[6], alpha, beta);
  };
  return fibers::run(kernel, blocks, (CONSUMERS + 1) * 128, seed, most_switches);
}
