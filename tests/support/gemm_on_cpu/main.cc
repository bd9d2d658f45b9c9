// The kernel of `gemm/cuda/source/kernel.cu` on a grid of fibers, right or with a mistake; its arguments are those of a launch, as numbers.
#include "instructions.cuh"

#include "kernel_on_cpu.cu"

#include "arguments.h"

// Returns 1 for a deadlock: threads took turns for too long.
extern "C" int run(int mistake, int blocks, unsigned seed, long long most_switches, const long long* arguments) {
  begin(mistake, arguments, blocks);
  arrivals.clear(), issued.clear(), boxes.clear(), unfenced.clear();
  const TensorMap rows_map = *taken<const TensorMap*>(), columns_map = *taken<const TensorMap*>();
#if STORES_BOXES
  const TensorMap whole_map = *taken<const TensorMap*>(), rest_map = *taken<const TensorMap*>();
#define RESULTS whole_map, rest_map
#else
  const auto c = taken<out_t*>();
#define RESULTS c
#endif
  const auto bias = taken<const void*>(), source = taken<const void*>();
  const auto workspace = taken<sum_t*>();
  const auto counters = taken<unsigned*>();
  int sizes[8];
  take(sizes);
  const auto stride = taken<long long>();
  const auto is_aligned = taken<int>();
  const auto source_row = taken<long long>(), source_column = taken<long long>();
  const auto alpha = taken<float>(), beta = taken<float>();
  unsigned long long by[4];
  take(by);
#if BATCHED
  const auto batch = taken<int>(), rows_step = taken<int>(), columns_step = taken<int>();
  const auto out_batch = taken<long long>(), source_batch = taken<long long>();
  const auto by_product = taken<unsigned long long>();
#define OF_BATCH , batch, rows_step, columns_step, out_batch, source_batch, by_product
#else
#define OF_BATCH
#endif
#if GROUPED
  const auto offsets = taken<const int*>();
  const auto bias_batch = taken<long long>();
  const auto out = taken<out_t*>();
#define OF_GROUPS , offsets, bias_batch, out
#else
#define OF_GROUPS
#endif
#if GATED
  const TensorMap others_map = *taken<const TensorMap*>();
#define OF_PAIRS , others_map
#else
#define OF_PAIRS
#endif
  TAKEN_FOR_EPILOGUE
  const auto kernel = [&] {
    gemm(rows_map, columns_map, RESULTS, bias, source, workspace, counters, sizes[0], sizes[1], sizes[2], sizes[3],
         sizes[4], sizes[5], sizes[6], sizes[7], stride, is_aligned, source_row, source_column, alpha, beta, by[0], by[1],
         by[2], by[3] OF_BATCH OF_GROUPS OF_PAIRS OF_EPILOGUE);
  };
  return fibers::run(kernel, blocks, (CONSUMERS + 1) * 128, seed, most_switches);
}
