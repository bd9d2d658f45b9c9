// Products of a sparse matrix whose rows have few patterns and a vector, with the values in CSR.
//
// A pattern is the distances of a row's columns from the row, in order. All rows of a stencil have a few patterns, and so
// have bands and dense blocks on the diagonal: a row is known by the number of its pattern, and no columns are read.
//
// A group is 32 rows, whose values follow each other in memory. Each warp walks groups of its own: it copies the values of
// the next groups to shared memory, whatever the lengths of rows are, while its lanes add a row each. Neighbours among
// lanes read neighbours of x. Offsets of rows are not read either: lengths of patterns are added over the lanes.
//
// The main pattern is that of most rows. Where all rows of a group have it, the compiler knows their length, and lanes
// know its distances: nothing but values is read. LENGTH is its length, HELD whether threads hold its distances.

#include "instructions.cuh"

// Elements of 16 bytes of values.
#define ALIGNED (16 / (int)sizeof(Value))

// Shared memory has a gap of 16 bytes behind every PERIOD elements, if any: rows of some lengths would begin in few banks.
__device__ __forceinline__ int place_of(int element) {
#if PERIOD
  return element + element / PERIOD * ALIGNED;
#else
  return element;
#endif
}

// Copies the values from `first` to `end`, at their distances from a multiple of 16 bytes.
__device__ __forceinline__ void copy_values(Value* to, const Value* values, int first, int end, int entries, int lane) {
  const int from = first & ~(ALIGNED - 1);
#if VECTOR == 1
#pragma unroll 4
  for (int i = first + lane; i < end; i += 32) to[place_of(i - from)] = values[i];
#else
#pragma unroll 1
  for (int i = from + lane * ALIGNED; i < end; i += 32 * ALIGNED) {
    Value* own = to + place_of(i - from);
    if (i + ALIGNED <= entries) {
      copy_vector(own, values + i);
    } else {
#pragma unroll 1
      for (int at = i; at < end; ++at) own[at - i] = values[at];
    }
  }
#endif
}

// The same for a group whose rows have the main pattern, which is not the last one of the array.
__device__ __forceinline__ void copy_main(Value* to, const Value* values, int first, int entries, int lane) {
#if VECTOR == 1
  copy_values(to, values, first, first + 32 * LENGTH, entries, lane);
#else
  const Value* from = values + (first & ~(ALIGNED - 1)) + lane * ALIGNED;
  constexpr int whole = LENGTH / ALIGNED, rest = 32 * LENGTH / ALIGNED - 32 * whole;
#pragma unroll
  for (int i = 0; i < whole; ++i) copy_vector(to + place_of((i * 32 + lane) * ALIGNED), from + i * 32 * ALIGNED);
  if (lane < rest + ((first & (ALIGNED - 1)) != 0)) {
    copy_vector(to + place_of((whole * 32 + lane) * ALIGNED), from + whole * 32 * ALIGNED);
  }
#endif
}

// What a warp knows of a group whose values are copied: as in `starts`, and the pattern of the lane's row.
struct Ahead {
  int start;
  unsigned pattern;
};

__device__ __forceinline__ int first_of(int start) { return start < 0 ? ~start : start; }

// Begins to copy a group. start: as in `starts`. next: of the next group. last: the last distance of the main pattern.
__device__ __forceinline__ Ahead copy_group(
    Value* to, const Value* values, const Value* x, const unsigned char* patterns, int start, int next, int group,
    int last, int rows, int entries, int lane) {
  const int row = group * 32 + lane;
  if (start < 0) {
    copy_main(to, values, ~start, entries, lane);
    // Others have read what comes before.
    bring_to_l2(x + (row + last));
    return {start, 0};
  }
  const unsigned pattern = row < rows ? patterns[row] : 0u;
  copy_values(to, values, start, first_of(next), entries, lane);
  return {start, pattern};
}

// The sum of a row of the main pattern. held: the first values of the group, from a multiple of 16 bytes.
__device__ __forceinline__ Sum sum_main(const Value* x, int row, const int* main,
                                        const int (&distance)[HELD ? LENGTH : 1], const Value* held, int own) {
  Sum sum = 0;
  Sum factors[LENGTH < BATCH ? LENGTH : BATCH];
#pragma unroll
  for (int at = 0; at < LENGTH; at += BATCH) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i < LENGTH) factors[i] = widened(__ldg(x + (row + (HELD ? distance[HELD ? at + i : 0] : __ldg(main + at + i)))));
    }
    // x is on its way before the values have to be there.
    if (at == 0) {
      wait_for_all_but<STAGES - 1>();
      wait_for_lanes();
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i < LENGTH) sum += widened(held[place_of(own + at + i)]) * factors[i];
    }
  }
  return sum;
}

// The sum of a row of any pattern. distances: of its entries, `step` apart, up to a multiple of BATCH of them.
__device__ __forceinline__ Sum sum_any(
    const Value* x, int row, const int* distances, int step, int length, const Value* held, int own) {
  Sum sum = 0;
  wait_for_all_but<STAGES - 1>();
  wait_for_lanes();
#pragma unroll 1
  for (int at = 0; at < length; at += BATCH) {
    int distance[BATCH];
    Sum factors[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) distance[i] = __ldg(distances + i * step);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) factors[i] = at + i < length ? widened(__ldg(x + (row + distance[i]))) : Sum(0);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i < length) sum += widened(held[place_of(own + at + i)]) * factors[i];
    }
    distances += BATCH * step;
  }
  return sum;
}

extern __shared__ uint4 memory[];

// starts: the first entry of each group, or its complement where all rows have the main pattern; the number of entries.
// patterns: of each row. lengths: of each pattern. distances: entry j of pattern p at j * num_patterns + p, then those of
// the main pattern. num_elements: of shared memory for a group.
extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) spmv_patterns(
    const int* starts, const unsigned char* patterns, const int* lengths, const int* distances, const int* main,
    const Value* values, const Value* x, Value* y, const Value* source, Sum alpha, Sum beta, int rows, int entries,
    int num_groups, int num_patterns, int num_elements) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = gridDim.x * WARPS;
  Value* stages = reinterpret_cast<Value*>(memory) + warp * STAGES * num_elements;
  const int last = __ldg(main + LENGTH - 1);
  int distance[HELD ? LENGTH : 1];
#if HELD
#pragma unroll
  for (int i = 0; i < LENGTH; ++i) distance[i] = __ldg(main + i);
#endif
  Ahead ahead[STAGES];
  const int begin = blockIdx.x * WARPS + warp;
#pragma unroll 1
  for (int i = 0; i < STAGES; ++i) {
    const int group = begin + i * step;
    Ahead own = {0, 0};
    if (group < num_groups) {
      own = copy_group(stages + i * num_elements, values, x, patterns, starts[group], starts[group + 1], group, last, rows,
                       entries, lane);
    }
    commit_copies();
#pragma unroll
    for (int k = 0; k < STAGES - 1; ++k) ahead[k] = ahead[k + 1];
    ahead[STAGES - 1] = own;
  }
  // The group that is copied next.
  int later = begin + STAGES * step, start = 0, next = 0;
  if (later < num_groups) start = starts[later], next = starts[later + 1];
  Value* held = stages;
#pragma unroll 1
  for (int group = begin; group < num_groups; group += step) {
    const int row = group * 32 + lane;
    Sum sum = 0;
    if (ahead[0].start < 0) {
      sum = sum_main(x, row, main, distance, held, (~ahead[0].start & (ALIGNED - 1)) + lane * LENGTH);
    } else {
      const int length = row < rows ? __ldg(lengths + ahead[0].pattern) : 0;
      const int own = scan_counts(length, lane) + (ahead[0].start & (ALIGNED - 1));
      sum = sum_any(x, row, distances + ahead[0].pattern, num_patterns, length, held, own);
    }
    if (row < rows) {
      sum *= alpha;
      if (HAS_SOURCE) sum += beta * widened(source[row]);
      y[row] = rounded(sum);
    }
    wait_for_lanes();
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) ahead[i] = ahead[i + 1];
    if (later < num_groups) {
      ahead[STAGES - 1] = copy_group(held, values, x, patterns, start, next, later, last, rows, entries, lane);
      later += step;
      if (later < num_groups) start = starts[later], next = starts[later + 1];
    }
    commit_copies();
    held += num_elements;
    if (held == stages + STAGES * num_elements) held = stages;
  }
}
