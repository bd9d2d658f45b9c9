// The kernel of `kernels/cg/source/cg.cu` on a grid of fibers. Gives 1 where its threads waited in vain.
#include "cg.cu"

#include "arguments.h"

extern "C" int run(int blocks, unsigned seed, long long most_switches, const long long* arguments) {
  begin(0, arguments, blocks);
#if STENCIL
  real coefficients[NUM_COEFFICIENTS];
  take(coefficients);
  const double scale = taken<double>();
#else
  const auto starts = taken<const row_index*>();
  const auto columns = taken<const column_index*>();
  const auto values = taken<const real*>();
  const auto inverse = taken<const real*>();
#endif
  const auto b = taken<const real*>();
  real* vectors[4];
  take(vectors);
  const auto slots = taken<Word*>();
  double* records[2];
  take(records);
  double limits[2];
  take(limits);
  int numbers[8];
  take(numbers);
  const auto [x, r, p, q] = vectors;
  const auto [n, rows, guess, resumed, first, last, most, history] = numbers;
  const auto kernel = [&, x = x, r = r, p = p, q = q, n = n, rows = rows, guess = guess, resumed = resumed, first = first,
                       last = last, most = most, history = history] {
    conjugate_gradient(
#if STENCIL
        COEFFICIENT_VALUES, scale,
#else
        starts, columns, values, inverse,
#endif
        b, x, r, p, q, slots, records[0], records[1], limits[0], limits[1], n, rows, guess, resumed, first, last, most, history);
  };
  return fibers::run(kernel, blocks, THREADS, seed, most_switches);
}
