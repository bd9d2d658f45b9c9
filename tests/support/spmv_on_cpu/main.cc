// The kernels of `kernels/spmv/source/kernel.cu` on a grid of fibers; their arguments are those of a launch, as numbers.
#include "kernel_on_cpu.cu"

#include "arguments.h"

static void watch(int place, const void* begin, size_t bytes) {
  const char* at = static_cast<const char*>(begin);
  spans[place][0] = at;
  spans[place][1] = at + bytes;
}

// Returns 1 for a deadlock: threads took turns for too long; 2 where entries were loaded from beyond their arrays.
extern "C" int run(int blocks, int threads, unsigned seed, long long most_switches, const long long* arguments) {
  begin(0, arguments, blocks);
#ifdef PERIOD
  const auto starts = taken<const int*>();
  const auto patterns = taken<const unsigned char*>();
  const auto lengths = taken<const int*>(), distances = taken<const int*>(), main_of = taken<const int*>();
  const auto values = taken<const Value*>(), x = taken<const Value*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  int n[5];
  take(n);
  watch(1, values, sizeof(Value) * n[1]);
  const auto kernel = [&] {
    spmv_patterns(starts, patterns, lengths, distances, main_of, values, x, y, source, alpha, beta, n[0], n[1], n[2], n[3],
                  n[4]);
  };
#elif defined EACH
  const auto columns = taken<const unsigned short*>();
  const auto values = taken<const Value*>();
  const auto flags = taken<const unsigned short*>();
  const auto places = taken<const int*>(), firsts = taken<const int*>();
  const auto x = taken<const Value*>();
  const auto sums = taken<Sum*>();
  int n[3];
  take(n);
  const auto kernel = [&] { spmv_runs(columns, values, flags, places, firsts, x, sums, n[0], n[1], n[2]); };
#elif KERNEL == 0
  const auto crow = taken<const int*>(), columns = taken<const int*>();
  const auto values = taken<const Value*>();
  const auto x = taken<const void*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto tiles = taken<const int4*>(), segments = taken<const int4*>();
  const auto parts = taken<Sum*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  int n[4];
  take(n);
  watch(0, columns, sizeof(int) * n[0]);
  if (values) watch(1, values, sizeof(Value) * n[0]);
  const auto kernel = [&] {
    spmv(crow, columns, values, x, y, source, tiles, segments, parts, alpha, beta, n[0], n[1], n[2], n[3]);
  };
#else
  const auto rows = taken<const int4*>();
  const auto parts = taken<const Sum*>();
  const auto y = taken<Value*>();
  const auto source = taken<const Value*>();
  const auto alpha = taken<Sum>(), beta = taken<Sum>();
  const auto kernel = [&] { spmv_long(rows, parts, y, source, alpha, beta); };
#endif
  strays = 0;
  const int stuck = fibers::run(kernel, blocks, threads, seed, most_switches);
  return stuck ? 1 : strays ? 2 : 0;
}
