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
// With PANELS the columns are dealt to panels, and x of a panel lies in shared memory: entries are sorted by panel and
// row, and columns are counted in 16 bits from the panel's first one on. Each panel's sums of rows go to memory, and
// `spmv_panels` adds them in order.

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
  const Column* columns;
  const Value* values;
  int entries;
};

#if PANELS
// The rows of a tile: {first row, first entry, end of its entries, number of rows}.
template <typename Vec, typename Write>
__device__ __forceinline__ void sum_rows(
    const Matrix& matrix, Vec x, int4 tile, Sum* products, int* offsets, Shared* shared, int thread, int team,
    Write write) {
  const int first = tile.y & ~(VECTOR - 1);
  for (int i = thread; i <= tile.w; i += THREADS) {
    copy_word(offsets + i, matrix.crow + tile.x + i);
  }
  if (thread == 0) shared->count = 0;
  constexpr int stride = VECTOR * THREADS;
  for (int at = first + VECTOR * thread; at < tile.z; at += UNROLL * stride) {
    Vector<Column> columns[UNROLL];
    Vector<Value> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (at + u * stride < tile.z) {
        load_vector(columns[u], matrix.columns, at + u * stride, matrix.entries);
        load_vector(values[u], matrix.values, at + u * stride, matrix.entries);
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (at + u * stride < tile.z) {
        Vector<Sum> product;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) product.at[i] = widened(values[u].at[i]) * widened(x(columns[u].at[i]));
        *reinterpret_cast<Vector<Sum>*>(products + (at + u * stride - first)) = product;
      }
    }
  }
  wait_for_copies();
  meet(team);
  // Threads of a group, so that each adds about eight products.
  int width = 1;
  while (width < 32 && 8 * width * tile.w < tile.z - tile.y) width *= 2;
  const int lane = thread & (width - 1), per_warp = 32 / width;
  for (int row = thread / 32 * per_warp; row < tile.w; row += THREADS / 32 * per_warp) {
    const int own = row + (thread & 31) / width;
    int begin = 0, end = 0;
    bool is_lengthy = false;
    if (own < tile.w) {
      begin = offsets[own] - first;
      end = offsets[own + 1] - first;
      is_lengthy = width < 32 && end - begin > LENGTHY * width;
    }
    Sum sum = 0;
    if (!is_lengthy) {
      for (int i = begin + lane; i < end; i += width) sum += products[i];
    } else if (lane == 0) {
      shared->lengthy[atomicAdd(&shared->count, 1)] = own;
    }
    sum = warp_sum(sum, width);
    if (own < tile.w && !is_lengthy && lane == 0) write(tile.x + own, sum);
  }
  meet(team);
  const int count = shared->count;
  for (int i = thread / 32; i < count; i += THREADS / 32) {
    const int own = shared->lengthy[i];
    const int begin = offsets[own] - first, end = offsets[own + 1] - first;
    Sum sum = 0;
    for (int at = begin + (thread & 31); at < end; at += 32) sum += products[at];
    sum = warp_sum(sum, 32);
    if ((thread & 31) == 0) write(tile.x + own, sum);
  }
  if (TEAMS > 1 || count) meet(team);
}
#endif

// Part of a long row: the sum of the products of entries from `begin` to `end`.
template <typename Vec>
__device__ __forceinline__ void sum_part(
    const Matrix& matrix, Vec x, int begin, int end, Sum* to, Shared* shared, int thread, int team) {
  Sum sum = 0;
  const int first = begin & ~(VECTOR - 1);
  for (int at = first + VECTOR * thread; at < end; at += VECTOR * THREADS) {
    Vector<Column> columns;
    Vector<Value> values;
    load_vector(columns, matrix.columns, at, matrix.entries);
    load_vector(values, matrix.values, at, matrix.entries);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
      if (at + i >= begin && at + i < end) sum += widened(values.at[i]) * widened(x(columns.at[i]));
    }
  }
  sum = warp_sum(sum, 32);
  if ((thread & 31) == 0) shared->of_warp[thread / 32] = sum;
  meet(team);
  if (thread < 32) {
    sum = thread < THREADS / 32 ? shared->of_warp[thread] : Sum(0);
    sum = warp_sum(sum, 32);
    if (thread == 0) *to = sum;
  }
  meet(team);
}

#if !PANELS
// Entries begin at multiples of 16 bytes in both arrays.
#define ALIGNED (sizeof(Value) == 2 ? 8 : 4)
#define WAYS 8

// A tile in shared memory.
struct Stage {
  int* offsets;
  int* columns;
  Value* values;
};

__device__ __forceinline__ Stage stage_of(char* memory, int number, int num_products, int num_offsets) {
  const int bytes = num_products * (4 + (int)sizeof(Value)) + num_offsets * 4;
  char* own = memory + number * bytes;
  return {reinterpret_cast<int*>(own + num_products * (4 + sizeof(Value))), reinterpret_cast<int*>(own),
          reinterpret_cast<Value*>(own + num_products * 4)};
}

// Copies `number` elements from an address on that is aligned to 16 bytes, and zeros beyond `left` of them.
template <typename T>
__device__ __forceinline__ void copy_array(T* to, const T* from, int number, int left, int thread) {
  constexpr int each = VECTOR > 1 ? 16 / sizeof(T) : 1;
  for (int i = each * thread; i < number; i += each * THREADS) {
    if (each > 1) copy_vector(to + i, from + i, min(each, left - i) * (int)sizeof(T));
    else to[i] = from[i];
  }
}

__device__ __forceinline__ void copy_tile(const Matrix& matrix, int4 tile, Stage stage, int thread) {
  if (tile.w > 0) {
    const int first = tile.y & ~(ALIGNED - 1), number = tile.z - first, left = matrix.entries - first;
    copy_array(stage.columns, matrix.columns + first, number, left, thread);
    copy_array(stage.values, matrix.values + first, number, left, thread);
    for (int i = thread; i <= tile.w; i += THREADS) copy_word(stage.offsets + i, matrix.crow + tile.x + i);
  }
  commit_copies();
}

// Products of all entries of a tile, in place of its columns, or of its values where these are as wide as sums.
__device__ __forceinline__ Sum* multiply_tile(const Value* x, int4 tile, Stage stage, int thread) {
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
    for (int i = 0; i < WAYS; ++i) factors[i] = at + i * THREADS < number ? widened(__ldg(x + columns[i])) : Sum(0);
#pragma unroll
    for (int i = 0; i < WAYS; ++i) {
      if (at + i * THREADS < number) products[at + i * THREADS] = values[i] * factors[i];
    }
  }
  return products;
}

// The sum of entries `from`, `from` + step and so on before `end`.
__device__ __forceinline__ Sum add_entries(
    const Value* x, Stage stage, const Sum* products, int from, int end, int step) {
  Sum sum = 0;
#if BY_ROWS
  for (int at = from; at < end; at += BATCH * step) {
    int columns[BATCH];
    Sum factors[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) columns[i] = at + i * step < end ? stage.columns[at + i * step] : 0;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i * step < end) factors[i] = widened(__ldg(x + columns[i]));
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (at + i * step < end) sum += widened(stage.values[at + i * step]) * factors[i];
    }
  }
#else
  for (int at = from; at < end; at += step) sum += products[at];
#endif
  return sum;
}

// The rows of a tile: {first row, first entry, end of its entries, number of rows}.
template <typename Write>
__device__ __forceinline__ void sum_tile(
    const Value* x, int4 tile, Stage stage, Shared* shared, int thread, Write write) {
  const Sum* products = nullptr;
  if (thread == 0) shared->count = 0;
#if !BY_ROWS
  products = multiply_tile(x, tile, stage, thread);
#endif
  meet(0);
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
  meet(0);
  const int count = shared->count;
  for (int i = thread / 32; i < count; i += THREADS / 32) {
    const int own = shared->lengthy[i];
    const int begin = stage.offsets[own] - first, end = stage.offsets[own + 1] - first;
    const Sum sum = warp_sum(add_entries(x, stage, products, begin + (thread & 31), end, 32), 32);
    if ((thread & 31) == 0) write(tile.x + own, sum);
  }
}
#endif

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

struct Partial {
  Sum* sums;
  __device__ __forceinline__ void operator()(int row, Sum sum) const { sums[row] = sum; }
};

struct Global {
  const Value* x;
  __device__ __forceinline__ Value operator()(int column) const { return __ldg(x + column); }
};

struct Panel {
  const Value* x;
  __device__ __forceinline__ Value operator()(int column) const { return x[column]; }
};

#if KERNEL == 0
extern __shared__ uint4 memory[];

// num_products, num_offsets: elements of shared memory for a tile. parts: {tail, head} of every tile. firsts: the first
// tile of each panel of `width` columns, and the number of tiles.
extern "C" __global__ void __launch_bounds__(THREADS* TEAMS, RESIDENT) spmv(
    const int* crow, const Column* columns, const Value* values, const Value* x, Value* y, const Value* source,
    const int4* tiles, const int4* segments, const int* firsts, Sum* parts, Sum* sums, Sum alpha, Sum beta, int entries, int num_tiles,
    int num_products, int num_offsets, int width, int num_columns) {
  const Matrix matrix = {crow, columns, values, entries};
#if PANELS
  Value* panel = reinterpret_cast<Value*>(memory);
  const int team = threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
  const int panel_bytes = (width * (int)sizeof(Value) + 15) / 16 * 16;
  const int team_bytes = (num_products * (int)sizeof(Sum) + num_offsets * 4 + (int)sizeof(Shared) + 15) / 16 * 16;
  char* own = reinterpret_cast<char*>(memory) + panel_bytes + team * team_bytes;
  Sum* products = reinterpret_cast<Sum*>(own);
  Shared* shared = reinterpret_cast<Shared*>(own + num_products * sizeof(Sum));
  int* offsets = reinterpret_cast<int*>(own + num_products * sizeof(Sum) + sizeof(Shared));
  const Partial write = {sums};
  const Panel vector = {panel};
  const long long all = num_tiles;
  const int begin = (int)(all * blockIdx.x / gridDim.x), end = (int)(all * (blockIdx.x + 1) / gridDim.x);
  int number = 0;
  for (int t = begin; t < end; ++number) {
    const int next = min(end, firsts[number + 1]);
    if (next <= t) continue;
    __syncthreads();
    const int here = min(width, num_columns - number * width);
    for (int i = threadIdx.x; i < here; i += THREADS * TEAMS) panel[i] = __ldg(x + (long long)number * width + i);
    __syncthreads();
    for (int mine = t + team; mine < next; mine += TEAMS) {
      const int4 tile = tiles[mine];
      if (tile.w > 0) sum_rows(matrix, vector, tile, products, offsets, shared, thread, team, write);
#if LONG
      const int4 segment = segments[mine];
      if (segment.x < segment.y) sum_part(matrix, vector, segment.x, segment.y, parts + 2 * mine, shared, thread, team);
      if (segment.z < segment.w)
        sum_part(matrix, vector, segment.z, segment.w, parts + 2 * mine + 1, shared, thread, team);
#endif
    }
    t = next;
  }
#else
  const int thread = threadIdx.x, step = gridDim.x;
  char* stages = reinterpret_cast<char*>(memory);
  Shared* shared = reinterpret_cast<Shared*>(
      stages + STAGES * (num_products * (4 + (int)sizeof(Value)) + num_offsets * 4));
  const End write = {y, source, alpha, beta};
  const int4 none = {0, 0, 0, 0};
  // Tiles whose descriptions are known: the one at work, and those that are copied.
  int4 ahead[STAGES];
  const int begin = blockIdx.x;
#pragma unroll
  for (int i = 0; i < STAGES; ++i) {
    ahead[i] = begin + i * step < num_tiles ? tiles[begin + i * step] : none;
    if (i < STAGES - 1) copy_tile(matrix, ahead[i], stage_of(stages, i, num_products, num_offsets), thread);
  }
  int number = 0;
  for (int t = begin; t < num_tiles; t += step) {
    const int last = number == 0 ? STAGES - 1 : number - 1;
    const int4 later = t + STAGES * step < num_tiles ? tiles[t + STAGES * step] : none;
    copy_tile(matrix, ahead[STAGES - 1], stage_of(stages, last, num_products, num_offsets), thread);
    const int4 tile = ahead[0];
    wait_for_all_but<STAGES - 1>();
    meet(0);
    if (tile.w > 0) sum_tile(x, tile, stage_of(stages, number, num_products, num_offsets), shared, thread, write);
    meet(0);
#if LONG
    const int4 segment = segments[t];
    const Global vector = {x};
    if (segment.x < segment.y) sum_part(matrix, vector, segment.x, segment.y, parts + 2 * t, shared, thread, 0);
    if (segment.z < segment.w) sum_part(matrix, vector, segment.z, segment.w, parts + 2 * t + 1, shared, thread, 0);
#endif
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) ahead[i] = ahead[i + 1];
    ahead[STAGES - 1] = later;
    number = number == STAGES - 1 ? 0 : number + 1;
  }
#endif
}

#elif KERNEL == 1
// Long rows {row, first tile, last tile, 0}: the head in the first tile and the tails in all others.
extern "C" __global__ void __launch_bounds__(128) spmv_long(
    const int4* rows, const Sum* parts, Value* y, const Value* source, Sum* sums, Sum alpha, Sum beta) {
  __shared__ Sum of_warp[4];
  const int4 row = rows[blockIdx.x];
  Sum sum = threadIdx.x == 0 ? parts[2 * row.y + 1] : Sum(0);
  for (int t = row.y + 1 + threadIdx.x; t <= row.z; t += 128) sum += parts[2 * t];
  sum = warp_sum(sum, 32);
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = (of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3]);
#if PANELS
    sums[row.x] = sum;
#else
    const End write = {y, source, alpha, beta};
    write(row.x, sum);
#endif
  }
}

#else
// The sums of all panels of each row.
extern "C" __global__ void __launch_bounds__(256) spmv_panels(
    const Sum* sums, Value* y, const Value* source, Sum alpha, Sum beta, int rows, int panels) {
  const int row = blockIdx.x * 256 + threadIdx.x;
  if (row >= rows) return;
  Sum sum = 0;
#pragma unroll 8
  for (int p = 0; p < panels; ++p) sum += sums[(long long)p * rows + row];
  const End write = {y, source, alpha, beta};
  write(row, sum);
}
#endif
