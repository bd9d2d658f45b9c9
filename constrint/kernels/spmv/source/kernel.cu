// Products of a sparse matrix in CSR and a vector, by tiles of equal work.
//
// An item of work is an entry or the start of a row; tile t has the items from t * TILE on. A block computes the rows
// that start in its tile, whole, unless they have TILE entries or more: those are shared by all tiles that they reach
// into, each of which leaves a partial sum that `spmv_long` adds in order. All sums have one order, which the matrix
// decides.
//
// Blocks walk tiles. The next tiles' entries and offsets are copied to shared memory while a block works on one, so that
// memory is busy and loads are coalesced whatever the rows are like. Groups of threads add rows from there: BY_ROWS takes
// x as rows need it, which is best where rows of neighbours read neighbours of x; else all products are made first, in
// the order of the entries, which is best where x is scattered.
//
// With UNIT all values are 1, and x has the type of sums: rows of sums that other kernels have left.

#include "instructions.cuh"

// VECTOR elements that are loaded together.
template <typename T>
struct alignas(sizeof(T) * VECTOR) Vector {
  T at[VECTOR];
};

template <int BYTES>
struct Word;
template <>
struct Word<4> {
  typedef unsigned Type;
};
template <>
struct Word<8> {
  typedef uint2 Type;
};
template <>
struct Word<16> {
  typedef uint4 Type;
};

template <typename T>
__device__ __forceinline__ void load_vector(Vector<T>& to, const T* from, int at, int end) {
  constexpr int bytes = sizeof(Vector<T>);
  if (VECTOR > 1 && at + VECTOR <= end) {
    constexpr int word = bytes >= 16 ? 16 : bytes < 4 ? 4 : bytes;
    typedef typename Word<word>::Type Type;
#pragma unroll
    for (int i = 0; i < bytes / word; ++i) {
      reinterpret_cast<Type*>(&to)[i] = load_once(reinterpret_cast<const Type*>(from + at) + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) to.at[i] = at + i < end ? from[at + i] : T(0);
  }
}

__device__ __forceinline__ Sum warp_sum(Sum sum, int width) {
  for (int step = width / 2; step > 0; step /= 2) sum += of_other_lane(sum, step);
  return sum;
}

// Rows of more than LENGTHY entries for each thread of a group are added by whole warps.
#define LENGTHY 24
#define MOST_LENGTHY (2 * TILE / LENGTHY + 1)

struct Shared {
  int lengthy[MOST_LENGTHY];
  int count;
  Sum of_warp[THREADS / 32];
};

struct Matrix {
  const int* crow;
  const int* columns;
  const Value* values;
  int entries;
};

struct End {
  Value* y;
  const Value* source;
  Sum alpha, beta;
  __device__ __forceinline__ void operator()(int row, Sum sum) const {
    sum *= alpha;
    if (HAS_SOURCE) sum += beta * widened(source[row]);
    y[row] = rounded(sum);
  }
};

struct Factors {
#if UNIT
  const Sum* x;
  __device__ __forceinline__ Sum operator()(int column) const { return __ldg(x + column); }
#else
  const Value* x;
  __device__ __forceinline__ Sum operator()(int column) const { return widened(__ldg(x + column)); }
#endif
};

__device__ __forceinline__ Sum value_of(const Value* value) { return UNIT ? Sum(1) : widened(*value); }

// Part of a long row: the sum of the products of entries from `begin` to `end`.
__device__ __forceinline__ void sum_part(
    const Matrix& matrix, Factors x, int begin, int end, Sum* to, Shared* shared, int thread) {
  Sum sum = 0;
  const int first = begin & ~(VECTOR - 1);
  constexpr int stride = VECTOR * THREADS, unroll = VECTOR > 1 ? 2 : 8;
  for (int at = first + VECTOR * thread; at < end; at += unroll * stride) {
    Vector<int> columns[unroll];
    Vector<Value> values[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (at + u * stride < end) {
        load_vector(columns[u], matrix.columns, at + u * stride, matrix.entries);
#if !UNIT
        load_vector(values[u], matrix.values, at + u * stride, matrix.entries);
#endif
      }
    }
    Sum factors[unroll][VECTOR];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) {
        const int own = at + u * stride + i;
        factors[u][i] = own >= begin && own < end ? x(columns[u].at[i]) : Sum(0);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) {
        const int own = at + u * stride + i;
        if (own >= begin && own < end) sum += value_of(&values[u].at[i]) * factors[u][i];
      }
    }
  }
  sum = warp_sum(sum, 32);
  if ((thread & 31) == 0) shared->of_warp[thread / 32] = sum;
  meet();
  if (thread < 32) {
    sum = thread < THREADS / 32 ? shared->of_warp[thread] : Sum(0);
    sum = warp_sum(sum, 32);
    if (thread == 0) *to = sum;
  }
  meet();
}

// Entries begin at multiples of 16 bytes in both arrays.
#define ALIGNED (sizeof(Value) == 2 ? 8 : 4)
#define WAYS 8

// A tile in shared memory.
struct Stage {
  int* offsets;
  int* columns;
  Value* values;
};

#define ENTRY_BYTES (4 + (UNIT ? 0 : (int)sizeof(Value)))

__device__ __forceinline__ Stage stage_of(char* memory, int number, int num_products, int num_offsets) {
  char* own = memory + number * (num_products * ENTRY_BYTES + num_offsets * 4);
  return {reinterpret_cast<int*>(own + num_products * ENTRY_BYTES), reinterpret_cast<int*>(own),
          reinterpret_cast<Value*>(own + num_products * 4)};
}

// Copies `number` elements from an address on that is aligned to 16 bytes, `left` elements before the end of the array.
// Vectors are whole; of the one in which the array ends, elements are copied.
template <typename T>
__device__ __forceinline__ void copy_array(T* to, const T* from, int number, int left, int thread) {
  constexpr int each = VECTOR > 1 ? 16 / sizeof(T) : 1;
  if (each == 1) {
    for (int i = thread; i < number; i += THREADS) to[i] = from[i];
    return;
  }
  const int whole = left & ~(each - 1);
  for (int i = each * thread; i < min(number, whole); i += each * THREADS) copy_vector(to + i, from + i);
  if (whole + thread < number) to[whole + thread] = from[whole + thread];
}

__device__ __forceinline__ void copy_tile(const Matrix& matrix, int4 tile, Stage stage, int thread) {
  if (tile.w > 0) {
    const int first = tile.y & ~(ALIGNED - 1), number = tile.z - first, left = matrix.entries - first;
    copy_array(stage.columns, matrix.columns + first, number, left, thread);
#if !UNIT
    copy_array(stage.values, matrix.values + first, number, left, thread);
#endif
    for (int i = thread; i <= tile.w; i += THREADS) copy_word(stage.offsets + i, matrix.crow + tile.x + i);
  }
  commit_copies();
}

#if !BY_ROWS
// Products of all entries of a tile, in place of its columns, or of its values where these are as wide as sums.
__device__ __forceinline__ Sum* multiply_tile(Factors x, int4 tile, Stage stage, int thread) {
  Sum* products = sizeof(Value) == 8 ? reinterpret_cast<Sum*>(stage.values) : reinterpret_cast<Sum*>(stage.columns);
  const int number = tile.z - (tile.y & ~(ALIGNED - 1));
  for (int at = thread; at < number; at += WAYS * THREADS) {
    int columns[WAYS];
    Sum values[WAYS], factors[WAYS];
#pragma unroll
    for (int i = 0; i < WAYS; ++i) {
      const bool is_inside = at + i * THREADS < number;
      columns[i] = is_inside ? stage.columns[at + i * THREADS] : 0;
      values[i] = is_inside ? widened(stage.values[at + i * THREADS]) : Sum(0);
    }
#pragma unroll
    for (int i = 0; i < WAYS; ++i) factors[i] = at + i * THREADS < number ? x(columns[i]) : Sum(0);
#pragma unroll
    for (int i = 0; i < WAYS; ++i) {
      if (at + i * THREADS < number) products[at + i * THREADS] = values[i] * factors[i];
    }
  }
  return products;
}
#endif

// The sum of entries `from`, `from` + step and so on before `end`.
__device__ __forceinline__ Sum add_entries(
    Factors x, Stage stage, const Sum* products, int from, int end, int step) {
  Sum sum = 0;
#if BY_ROWS
  for (int at = from; at < end; at += BATCH * step) {
    int columns[BATCH];
    Sum factors[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) columns[i] = at + i * step < end ? stage.columns[at + i * step] : 0;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i * step < end) factors[i] = x(columns[i]);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i * step < end) sum += value_of(stage.values + at + i * step) * factors[i];
    }
  }
#else
  for (int at = from; at < end; at += step) sum += products[at];
#endif
  return sum;
}

// The rows of a tile: {first row, first entry, end of its entries, number of rows}.
__device__ __forceinline__ void sum_tile(
    Factors x, int4 tile, Stage stage, Shared* shared, int thread, End write) {
  const Sum* products = nullptr;
  if (thread == 0) shared->count = 0;
#if !BY_ROWS
  products = multiply_tile(x, tile, stage, thread);
#endif
  meet();
  const int first = tile.y & ~(ALIGNED - 1);
  // Threads of a group, so that each adds about STEPS entries.
  int width = 1;
  while (width < 32 && STEPS * width * tile.w < tile.z - tile.y) width *= 2;
  const int lane = thread & (width - 1), per_warp = 32 / width;
  for (int row = thread / 32 * per_warp; row < tile.w; row += THREADS / 32 * per_warp) {
    const int own = row + (thread & 31) / width;
    int begin = 0, end = 0;
    bool is_lengthy = false;
    if (own < tile.w) {
      begin = stage.offsets[own] - first;
      end = stage.offsets[own + 1] - first;
      is_lengthy = width < 32 && end - begin > LENGTHY * width;
    }
    Sum sum = 0;
    if (!is_lengthy) {
      sum = add_entries(x, stage, products, begin + lane, end, width);
    } else if (lane == 0) {
      shared->lengthy[atomicAdd(&shared->count, 1)] = own;
    }
    sum = warp_sum(sum, width);
    if (own < tile.w && !is_lengthy && lane == 0) write(tile.x + own, sum);
  }
  meet();
  const int count = shared->count;
  for (int i = thread / 32; i < count; i += THREADS / 32) {
    const int own = shared->lengthy[i];
    const int begin = stage.offsets[own] - first, end = stage.offsets[own + 1] - first;
    const Sum sum = warp_sum(add_entries(x, stage, products, begin + (thread & 31), end, 32), 32);
    if ((thread & 31) == 0) write(tile.x + own, sum);
  }
}

// Works on tiles from `begin` on, `step` apart, before `end`, while the next ones are copied.
__device__ __forceinline__ void walk(
    const Matrix& matrix, Factors x, const int4* tiles, const int4* segments, Sum* parts, int begin, int end, int step,
    char* stages, Shared* shared, int num_products, int num_offsets, int thread, End write) {
  const int4 none = {0, 0, 0, 0};
  // Tiles whose descriptions are known: the one at work, and those that are copied.
  int4 ahead[STAGES];
#pragma unroll
  for (int i = 0; i < STAGES; ++i) {
    ahead[i] = begin + i * step < end ? tiles[begin + i * step] : none;
    if (i < STAGES - 1) copy_tile(matrix, ahead[i], stage_of(stages, i, num_products, num_offsets), thread);
  }
  int number = 0;
  for (int t = begin; t < end; t += step) {
    const int last = number == 0 ? STAGES - 1 : number - 1;
    const int4 later = t + STAGES * step < end ? tiles[t + STAGES * step] : none;
    copy_tile(matrix, ahead[STAGES - 1], stage_of(stages, last, num_products, num_offsets), thread);
    const int4 tile = ahead[0];
    wait_for_all_but<STAGES - 1>();
    meet();
    if (tile.w > 0) sum_tile(x, tile, stage_of(stages, number, num_products, num_offsets), shared, thread, write);
    meet();
#if LONG
    const int4 segment = segments[t];
    if (segment.x < segment.y) sum_part(matrix, x, segment.x, segment.y, parts + 2 * t, shared, thread);
    if (segment.z < segment.w) sum_part(matrix, x, segment.z, segment.w, parts + 2 * t + 1, shared, thread);
#endif
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) ahead[i] = ahead[i + 1];
    ahead[STAGES - 1] = later;
    number = number == STAGES - 1 ? 0 : number + 1;
  }
}

#if KERNEL == 0
extern __shared__ uint4 memory[];

// num_products, num_offsets: elements of shared memory for a tile. parts: {tail, head} of every tile.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) spmv(
    const int* crow, const int* columns, const Value* values, const void* x, Value* y, const Value* source,
    const int4* tiles, const int4* segments, Sum* parts, Sum alpha, Sum beta, int entries, int num_tiles,
    int num_products, int num_offsets) {
  const Matrix matrix = {crow, columns, values, entries};
  char* stages = reinterpret_cast<char*>(memory);
  Shared* shared = reinterpret_cast<Shared*>(stages + STAGES * (num_products * ENTRY_BYTES + num_offsets * 4));
  const Factors factors = {reinterpret_cast<decltype(Factors::x)>(x)};
  walk(matrix, factors, tiles, segments, parts, blockIdx.x, num_tiles, gridDim.x, stages, shared, num_products,
       num_offsets, threadIdx.x, End{y, source, alpha, beta});
}

#else
// Long rows {row, first tile, last tile, 0}: the head in the first tile and the tails in all others.
extern "C" __global__ void __launch_bounds__(128) spmv_long(
    const int4* rows, const Sum* parts, Value* y, const Value* source, Sum alpha, Sum beta) {
  __shared__ Sum of_warp[4];
  const int4 row = rows[blockIdx.x];
  Sum sum = threadIdx.x == 0 ? parts[2 * row.y + 1] : Sum(0);
  for (int t = row.y + 1 + threadIdx.x; t <= row.z; t += 128) sum += parts[2 * t];
  sum = warp_sum(sum, 32);
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = (of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3]);
    const End write = {y, source, alpha, beta};
    write(row.x, sum);
  }
}

#endif
