// The kernel of `gemm/cuda/unaligned/source/kernel.cu` on a grid of fibers; its arguments are those of a launch, as numbers.
#include "instructions.cuh"

#include "kernel_on_cpu.cu"

static const long long* next_argument;
template <typename T>
T taken() {
  T made;
  std::memcpy(&made, next_argument++, sizeof made);
  return made;
}

#define GIVEN_0(name) const TensorMap name##_map = *taken<const TensorMap*>();
#define GIVEN_1(name)                                             \
  const auto name##_first = taken<const unsigned char*>();        \
  const auto name##_pitch = taken<long long>();                   \
  const auto name##_bytes = taken<long long>();                   \
  const auto name##_lines = taken<int>();                         \
  readable.push_back({name##_first, name##_first + name##_bytes});
#define GIVEN(is_gathered, name) JOINED(GIVEN_, is_gathered)(name)
#define ARGUMENT_0(name) name##_map
#define ARGUMENT_1(name) name##_first, name##_pitch, name##_bytes, name##_lines
#define ARGUMENT(is_gathered, name) JOINED(ARGUMENT_, is_gathered)(name)

// Gives 1 where threads waited in vain, and 2 where something was read that is of no operand.
extern "C" int run(int blocks, unsigned seed, long long most_switches, const long long* arguments) {
  next_argument = arguments;
  readable.clear(), copies.clear(), copy_groups.clear(), arrivals.clear(), issued.clear(), unfenced.clear();
  strays = 0, gridDim = {blocks, 1, 1};
  GIVEN(ROWS_GATHERED, rows)
  GIVEN(COLUMNS_GATHERED, columns)
  const auto c = taken<out_t*>();
  const auto bias = taken<const void*>(), source = taken<const void*>();
  const auto workspace = taken<sum_t*>();
  const auto counters = taken<unsigned*>();
  int sizes[8];
  for (int& size : sizes) size = taken<int>();
  const auto stride = taken<long long>();
  const auto is_aligned = taken<int>();
  const auto source_row = taken<long long>(), source_column = taken<long long>();
  const auto alpha = taken<float>(), beta = taken<float>();
  unsigned long long by[4];
  for (auto& each : by) each = taken<unsigned long long>();
  const auto kernel = [&] {
    gemm(ARGUMENT(ROWS_GATHERED, rows), ARGUMENT(COLUMNS_GATHERED, columns), c, bias, source, workspace, counters, sizes[0],
         sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], stride, is_aligned, source_row, source_column,
         alpha, beta, by[0], by[1], by[2], by[3]);
  };
  const int stuck = fibers::run(kernel, blocks, (CONSUMERS + 1) * 128, seed, most_switches);
  return stuck ? 1 : strays ? 2 : 0;
}
