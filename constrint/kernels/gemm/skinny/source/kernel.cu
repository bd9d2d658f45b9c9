// C = A @ B where one side of C is short: the operand of the other side, W (rows, K), is read once, as fast as memory
// gives it; that of the short side, X (small, K), comes from caches. With TURNED, M is the short side: W is B^T, X is A.
//
// A warp reads 64 bytes along K at a time. Lane 4 g + t has 16 of them, those of t: of W's rows g, g + 8, ... where W
// lies along K; else of as many numbers along K, the vectors of rows at 16 bytes g. Both are what mma.sync takes, since
// the order of K and of rows is free: where W does not lie along K, lanes put pairs or fours along K together.
//
// Work is counted in steps: a block's warps take one together, of a tile of rows. Blocks take even shares of all steps,
// whatever tile they begin in. Where several share a tile, the last one to come adds their sums in the order of K.
// With BATCHED there are several products of the same sizes: blocks with the same z compute one.
#include "instructions.cuh"

#include "epilogue.cuh"

#ifndef BATCHED
#define BATCHED 0
#endif

// Operands that end within a vector at a multiple of 16 bytes, which nobody may read beyond their end: 1 W, 2 X, 3 both.
#ifndef RAGGED
#define RAGGED 0
#endif

constexpr int kTiles = TILES, kUnroll = UNROLL, kSmall = SMALL, kFanIn = FAN_IN;
constexpr int kVector = 16 / kElement, kLine = 4 * kVector;            // elements of 16 and of 64 bytes
constexpr int kVectors = (K_MAJOR ? 2 : kVector) * kTiles;             // of a lane and 64 bytes along K
constexpr int kWarpRows = (K_MAJOR ? 16 : 8 * kVector) * kTiles;       // of W
constexpr int kRows = kWarpRows * WARPS_ROWS, kPitch = kRows + 4;      // of a block, and where they lie in shared memory
constexpr int kBatch = kLine * kUnroll, kDepth = kBatch * WARPS_DEPTH;  // along K of a warp's step and a block's
constexpr int kThreads = 32 * WARPS_ROWS * WARPS_DEPTH;
constexpr int kNarrow = MMA ? kSmall / 8 : kSmall;                     // vectors of X for 64 bytes along K
// Sums of a lane: of matrices of 16 by 8, or of rows of W and X.
constexpr int kHigh = MMA ? kWarpRows / 16 : kWarpRows / 8, kWide = MMA ? 4 : 1;
static_assert(!MMA || kSmall % 8 == 0, "a matrix instruction takes eight rows of X");

// The kernel's parameters, where they are: read when they are used, they take no registers beside the sums.
struct Sizes {
  const int &rows, &small, &depth;
  const int &tiles, &steps;  // tiles of rows, and steps along K of each
  const int& counters;       // of a tile: its own, and one of each group of neighbours
  const float &alpha, &beta;
  const long long& pitch;                   // elements of W from a row to the next, or from one along K to the next
  const long long &small_row, &small_step;  // elements of X from a row to the next, and from one along K to the next
  const long long &out_row, &out_small;     // elements of C for a row of W, and for one of X
  const long long &source_row, &source_column;  // elements of what is added, as C has them
};

// How an operand is read: vectors at multiples of 16 bytes, vectors anywhere, or elements.
enum Mode { kAligned = 0, kShifted = 1, kStrided = 2 };

__device__ __forceinline__ Vector zeros() {
  return Vector{{0u, 0u, 0u, 0u}};
}

// Keeps so many bytes of a vector.
__device__ __forceinline__ void mask(Vector& v, int bytes) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int keep = bytes - 4 * i;
    v.word[i] &= keep >= 4 ? ~0u : keep <= 0 ? 0u : (1u << (8 * keep)) - 1u;
  }
}

// 16 bytes of two vectors beside each other, from a byte on.
__device__ __forceinline__ Vector shifted(const Vector& low, const Vector& high, unsigned bytes) {
  unsigned by_two[6], by_one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    const unsigned here = i < 4 ? low.word[i & 3] : high.word[i & 3];
    const unsigned beyond = i < 2 ? low.word[(i + 2) & 3] : high.word[(i + 2) & 3];
    by_two[i] = bytes & 8 ? beyond : here;
  }
#pragma unroll
  for (int i = 0; i < 5; ++i) by_one[i] = bytes & 4 ? by_two[i + 1] : by_two[i];
  Vector v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.word[i] = __funnelshift_r(by_one[i], by_one[i + 1], 8 * (bytes & 3));
  return v;
}

#if RAGGED
// The words of a vector at a multiple of 16 bytes that hold bytes from `first` on and lie before the end of an operand, and
// what bytes of the operand are left; zeros where it is not asked for. Without a branch loads that follow are under way
// meanwhile; with one (kBranches) no more registers are taken than by vectors, of which W across K has many under way.
template <bool kBranches>
__device__ __forceinline__ Vector load_before(
    const unsigned char* at, const unsigned char* end, int first, bool is_asked) {
  if constexpr (kBranches)
    if (is_asked && end - at >= 16) return load_kept(at);
  const int bytes = is_asked ? static_cast<int>(min(static_cast<long long>(end - at), 16ll)) : 0;
  Vector v = zeros();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (4 * i + 4 <= bytes && 4 * i + 4 > first) v.word[i] = __ldg(reinterpret_cast<const unsigned*>(at) + i);
  if constexpr (kElement < 4) {
    unsigned rest = 0, last = 0;
    if (bytes & 2 && (bytes & 12) + 2 > first) rest = __ldg(reinterpret_cast<const unsigned short*>(at + (bytes & 12)));
    if (kElement == 1 && bytes & 1) last = __ldg(at + (bytes & 14));
    rest |= last << (bytes & 2) * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) v.word[i] |= 4 * i == (bytes & 12) ? rest : 0u;
  }
  return v;
}
#endif

// 16 bytes from anywhere, of which so many, at least one, are the operand's. Only vectors that hold such a byte are read.
// With kMayEnd there may be none, and no byte beyond `end` is read.
template <int kMode, bool kIsOnce, bool kMayEnd>
__device__ __forceinline__ Vector load(const unsigned char* from, int bytes, [[maybe_unused]] const unsigned char* end) {
  if constexpr (kMode == kAligned) {
#if RAGGED
    if constexpr (kMayEnd) return load_before<kIsOnce && !K_MAJOR>(from, end, 0, bytes > 0);
#endif
    return kIsOnce ? load_once(from) : load_kept(from);
  } else {
    const unsigned off = static_cast<unsigned>(reinterpret_cast<unsigned long long>(from)) & 15u;
    const unsigned char* const at = from - off;
#if RAGGED
    if constexpr (kMayEnd) {
      const int first = static_cast<int>(off);
      constexpr bool kBranches = kIsOnce && !K_MAJOR;
      const Vector low = load_before<kBranches>(at, end, first, bytes > 0);
      return shifted(low, load_before<kBranches>(at + 16, end, 0, first + bytes > 16 && bytes > 0), off);
    }
#endif
    const Vector low = load_kept(at);
    Vector high = low;
    if (static_cast<int>(off) + bytes > 16) high = load_kept(at + 16);
    return shifted(low, high, off);
  }
}

// 16 bytes along K from an element on, of which the operand has so many elements; zeros beyond.
template <int kMode, bool kIsOnce, bool kIsEnd, bool kMayEnd>
__device__ __forceinline__ Vector load_along(
    const unsigned char* row, int k, int left, long long step, const unsigned char* end) {
  if constexpr (kMode == kStrided) {
    Vector v = zeros();
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      if (kIsEnd && e >= left) continue;
      const unsigned char* const from = row + (k + e) * step * kElement;
      unsigned bits;
      if constexpr (kElement == 4) {
        bits = __ldg(reinterpret_cast<const unsigned*>(from));
      } else if constexpr (kElement == 2) {
        bits = __ldg(reinterpret_cast<const unsigned short*>(from));
      } else {
        bits = __ldg(from);
      }
      v.word[e * kElement / 4] |= bits << (e * kElement % 4 * 8);
    }
    return v;
  } else {
    if (kIsEnd && !kMayEnd && left <= 0) return zeros();
    const int bytes = kIsEnd ? min(kMayEnd ? max(left, 0) : left, kVector) * kElement : 16;
    Vector v = load<kMode, kIsOnce, kMayEnd>(row + static_cast<long long>(k) * kElement, bytes, end);
    if constexpr (kIsEnd) mask(v, bytes);
    return v;
  }
}

// Where a lane's rows of W begin: at rows where W lies along K, else at vectors of rows, of which some bytes are W's.
struct Rows {
  const unsigned char* from[K_MAJOR ? kVectors : kTiles];
  int bytes[K_MAJOR ? 1 : kTiles];
#if RAGGED & 1
  const unsigned char* end;  // of W
#endif
};

__device__ __forceinline__ Rows rows_of(const Sizes& s, const unsigned char* large, int first) {
  const int g = threadIdx.x % 32 / 4;
  Rows rows;
  // What is beyond the last row repeats one, and is never stored.
  if constexpr (K_MAJOR) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      rows.from[v] = large + min(first + 8 * v + g, s.rows - 1) * s.pitch * kElement;
  } else {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int row = min(first + (8 * i + g) * kVector, (s.rows - 1) / kVector * kVector);
      rows.from[i] = large + static_cast<long long>(row) * kElement;
      rows.bytes[i] = min(s.rows - row, kVector) * kElement;
    }
  }
#if RAGGED & 1
  const int last = K_MAJOR ? s.rows - 1 : s.depth - 1, length = K_MAJOR ? s.depth : s.rows;
  rows.end = large + (last * s.pitch + length) * kElement;
#endif
  return rows;
}

// Whether all vectors of a warp's step, which begins at an element along K, lie within the operands.
__device__ __forceinline__ bool is_whole(const Sizes& s, int k) {
#if RAGGED
  // Vectors anywhere reach up to 15 bytes further than what is taken of them.
  constexpr bool kReaches = (RAGGED & 1 && K_MAJOR && LARGE_MODE == kShifted) || (RAGGED & 2 && SMALL_MODE == kShifted);
  const int left = s.depth - k - kBatch;
  if constexpr (RAGGED & 1 && !K_MAJOR)
    if (left * s.pitch < kVector) return false;
  return left >= (kReaches ? kVector : 0);
#else
  return k + kBatch <= s.depth;
#endif
}

// The row in a warp's tile of a lane's sum.
__device__ __forceinline__ int row_of(int high, int half) {
  const int g = threadIdx.x % 32 / 4;
  if constexpr (MMA) {
    if constexpr (K_MAJOR) return 16 * high + 8 * half + g;
    constexpr int kPairs = kVector / 2;
    return (high / kPairs * 8 + g) * kVector + 2 * (high % kPairs) + half;
  } else {
    return K_MAJOR ? 8 * high + g : (high / kVector * 8 + g) * kVector + high % kVector;
  }
}

// Numbers along K of one row, of vectors along rows: the row is the given one of a pair.
__device__ __forceinline__ unsigned along_depth(const Vector* lines, int pair, int half) {
  if constexpr (kElement == 2) {
    return __byte_perm(lines[0].word[pair], lines[1].word[pair], half ? 0x7632 : 0x5410);
  } else {
    const int word = pair / 2, order = pair % 2 ? 0x7362 : 0x5140;
    const unsigned low = __byte_perm(lines[0].word[word], lines[1].word[word], order);
    const unsigned high = __byte_perm(lines[2].word[word], lines[3].word[word], order);
    return __byte_perm(low, high, half ? 0x7632 : 0x5410);
  }
}

// One line of 64 bytes along K, times all of X.
__device__ __forceinline__ void multiply(
    sum_t (&sums)[kHigh][kNarrow][kWide], const Vector (&w)[kVectors], const Vector& x, int narrow_) {
  if constexpr (MMA) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned x0 = x.word[2 * half], x1 = x.word[2 * half + 1];
#pragma unroll
      for (int high = 0; high < kHigh; ++high) {
        sum_t(&own)[4] = reinterpret_cast<sum_t(&)[4]>(sums[high][narrow_]);
        if constexpr (K_MAJOR) {
          const Vector &a = w[2 * high], &b = w[2 * high + 1];
          multiply_matrices(
              own, a.word[2 * half], b.word[2 * half], a.word[2 * half + 1], b.word[2 * half + 1], x0, x1);
        } else if constexpr (kElement < 4) {
          constexpr int kPairs = kVector / 2, kInWord = 4 / kElement;
          const Vector* const lines = w + high / kPairs * kVector + half * 2 * kInWord;
          const int pair = high % kPairs;
          multiply_matrices(
              own, along_depth(lines, pair, 0), along_depth(lines, pair, 1), along_depth(lines + kInWord, pair, 0),
              along_depth(lines + kInWord, pair, 1), x0, x1);
        }
      }
    }
  } else {
    sum_t factors[kVector];
    unpack(x, factors);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      sum_t numbers[kVector];
      unpack(w[v], numbers);
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        if constexpr (K_MAJOR) {
          sums[v][narrow_][0] += numbers[e] * factors[e];
        } else {
          sums[v / kVector * kVector + e][narrow_][0] += numbers[e] * factors[v % kVector];
        }
      }
    }
  }
}

// A warp's part of the long operand of a step.
template <bool kIsEnd>
__device__ __forceinline__ void load_large(Vector (&w)[kUnroll][kVectors], const Sizes& s, const Rows& rows, int first_k) {
  const int t = threadIdx.x % 4;
  constexpr bool kMayEnd = RAGGED & 1 && kIsEnd;
#if RAGGED & 1
  const unsigned char* const end = rows.end;
#else
  const unsigned char* const end = nullptr;
#endif
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int k = first_k + u * kLine + t * kVector, left = s.depth - k;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (K_MAJOR) {
        w[u][v] = load_along<LARGE_MODE, true, kIsEnd, kMayEnd>(rows.from[v], k, left, 1, end);
      } else if (kIsEnd && !kMayEnd && v % kVector >= left) {
        w[u][v] = zeros();
      } else {
        const int tile = v / kVector, bytes = kMayEnd && v % kVector >= left ? 0 : rows.bytes[tile];
        w[u][v] = load<LARGE_MODE, true, kMayEnd>(
            rows.from[tile] + (k + v % kVector) * s.pitch * kElement, bytes, end);
      }
    }
  }
}

// What was loaded of the long operand, times the short one.
template <bool kIsEnd>
__device__ __forceinline__ void multiply_step(
    sum_t (&sums)[kHigh][kNarrow][kWide], const Vector (&w)[kUnroll][kVectors], const Sizes& s,
    const unsigned char* small, int first_small, int first_k) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  constexpr bool kMayEnd = RAGGED & 2 && kIsEnd;
#if RAGGED & 2
  const unsigned char* const end =
      small + ((s.small - 1) * s.small_row + (s.depth - 1) * s.small_step + 1) * kElement;
#else
  const unsigned char* const end = nullptr;
#endif
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int k = first_k + u * kLine + t * kVector, left = s.depth - k;
#pragma unroll
    for (int i = 0; i < kNarrow; ++i) {
      const int row = first_small + (MMA ? 8 * i + g : i);
      Vector x = zeros();
      if constexpr (kMayEnd && SMALL_MODE != kStrided) {
        const int of_row = row < s.small ? left : 0;
        x = load_along<SMALL_MODE, false, kIsEnd, kMayEnd>(
            small + row * s.small_row * kElement, k, of_row, s.small_step, end);
      } else if (row < s.small)
        x = load_along<SMALL_MODE, false, kIsEnd, kMayEnd>(
            small + row * s.small_row * kElement, k, left, s.small_step, end);
      multiply(sums, w[u], x, i);
    }
  }
}

// A warp's part of a step: all loads first, so that many bytes are under way.
template <bool kIsEnd>
__device__ __forceinline__ void advance(
    sum_t (&sums)[kHigh][kNarrow][kWide], const Sizes& s, const Rows& rows, const unsigned char* small, int first_small,
    int first_k) {
  Vector w[kUnroll][kVectors];
  load_large<kIsEnd>(w, s, rows, first_k);
  multiply_step<kIsEnd>(sums, w, s, small, first_small, first_k);
}

// A warp's sums go to shared memory, at [warp along K][row of X][row of W].
__device__ __forceinline__ void leave(const sum_t (&sums)[kHigh][kNarrow][kWide], sum_t* own) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int high = 0; high < kHigh; ++high)
#pragma unroll
    for (int i = 0; i < kNarrow; ++i) {
      if constexpr (MMA) {
#pragma unroll
        for (int c = 0; c < 4; ++c) own[(8 * i + 2 * t + c % 2) * kPitch + row_of(high, c / 2)] = sums[high][i][c];
      } else {
        sum_t sum = sums[high][i][0];
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        if (t == i % 4) own[i * kPitch + row_of(high, 0)] = sum;
      }
    }
}

__device__ __forceinline__ sum_t sum_of_warps(const sum_t* shared, int row, int column) {
  sum_t sum = 0;
#pragma unroll
  for (int warp = 0; warp < WARPS_DEPTH; ++warp) sum += shared[(warp * kSmall + column) * kPitch + row];
  return sum;
}

// Among what all products and all groups of rows of X have, the place of this block's.
__device__ __forceinline__ int own_group() {
#if BATCHED
  return blockIdx.z * gridDim.y + blockIdx.y;
#else
  return blockIdx.y;
#endif
}

// Blocks that have steps of a tile: all between those of its first and its last one. The launch sees to it that steps
// times blocks are less than 2^31.
struct Share {
  unsigned all, first;  // steps of all tiles, and before this one
  __device__ __forceinline__ unsigned begin(unsigned block) const { return all * block / gridDim.x; }
  __device__ __forceinline__ int block_of(unsigned step) const {
    return static_cast<int>(((step + 1) * gridDim.x - 1) / all);
  }
  // A block leaves sums at two places: of the tile that it begins in the midst of or with, and of a later one.
  __device__ __forceinline__ long long place(int block) const {
    return 2ll * (own_group() * gridDim.x + block) + (begin(block) < first);
  }
};

// Adds what blocks left of some fours of sums, in the order of K; a block's sums are kRows * kSmall.
template <int kFours>
__device__ __forceinline__ void add_blocks(
    sum_t (&sums)[kFours][4], const Share& share, const sum_t* workspace, int first, int last, int stride, int four,
    int count) {
#pragma unroll 2
  for (int block = first; block <= last; block += stride) {
    const sum_t* const from = workspace + share.place(block) * (kRows * kSmall);
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const int place = 4 * (four + j * kThreads);
      if (place >= count) continue;
      sum_t part[4];
      load_part(from + place, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] += part[i];
    }
  }
}

// Whether all others, so many, came before this block; then the counter is zero again.
__device__ __forceinline__ bool comes_last(unsigned* counter, int others) {
  __shared__ unsigned is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned came = atomicAdd(counter, 1u);
    is_last = came == static_cast<unsigned>(others);
    if (is_last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// Adds what blocks left, each `stride`-th of them, and stores it.
template <typename Store>
__device__ __forceinline__ void add_all(
    const Share& share, sum_t* shared, const sum_t* workspace, int first, int last, int stride, int count,
    const Store& store) {
  const int fours = count / 4, thread = threadIdx.x;
  const int groups = max(1, min(kThreads / fours, 32)), group = thread / fours;
  if (groups == 1) {
    constexpr int kFours = 4;
    for (int four = thread; four < fours; four += kFours * kThreads) {
      sum_t sums[kFours][4] = {};
      add_blocks(sums, share, workspace, first, last, stride, four, count);
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const int place = 4 * (four + j * kThreads);
        if (place >= count) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) store(place % kRows + i, place / kRows, sums[j][i]);
      }
    }
    return;
  }
  // Few sums of many blocks: groups of threads share the blocks out, and what they found is added in order.
  if (group < groups) {
    sum_t sums[1][4] = {};
    add_blocks(sums, share, workspace, first + group * stride, last, groups * stride, thread % fours, count);
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[4 * thread + i] = sums[0][i];
  }
  __syncthreads();
  for (int place = thread; place < count; place += kThreads) {
    sum_t sum = 0;
    for (int i = 0; i < groups; ++i) sum += shared[i * count + place];
    store(place % kRows, place / kRows, sum);
  }
}

// Leaves this block's sums in memory; whoever comes last adds all, in order, and stores them. With kFanIn so many
// neighbours add theirs first, so that the last block of a tile reads few.
template <typename Store>
__device__ __forceinline__ void add_parts(
    const Share& share, int steps, sum_t* shared, sum_t* workspace, unsigned* counter, int width, const Store& store) {
  const int count = kRows * width, fours = count / 4;
  const int first = share.block_of(share.first), last = share.block_of(share.first + steps - 1);
  sum_t* const own = workspace + share.place(blockIdx.x) * (kRows * kSmall);
  for (int four = threadIdx.x; four < fours; four += kThreads) {
    sum_t part[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = sum_of_warps(shared, 4 * four % kRows + i, 4 * four / kRows);
    store_part(own + 4 * four, part);
  }
  if constexpr (kFanIn > 1) {
    const int group = (static_cast<int>(blockIdx.x) - first) / kFanIn;
    const int low = first + group * kFanIn, high = min(last, low + kFanIn - 1);
    if (!comes_last(counter + 1 + group, high - low)) return;
    // Each thread stores where it alone has read, or after all have read.
    sum_t* const to = workspace + share.place(low) * (kRows * kSmall);
    add_all(share, shared, workspace, low, high, 1, count, [&](int row, int column, sum_t sum) {
      to[column * kRows + row] = sum;
    });
    if (!comes_last(counter, (last - first) / kFanIn)) return;
    add_all(share, shared, workspace, first, last, kFanIn, count, store);
  } else {
    if (!comes_last(counter, last - first)) return;
    add_all(share, shared, workspace, first, last, 1, count, store);
  }
}

// Ends a tile, of which a block has so many steps: brings the sums of its warps together, and those of blocks.
__device__ __forceinline__ void end_tile(
    const sum_t (&sums)[kHigh][kNarrow][kWide], const Sizes& s, const Share& share, const End& end, out_t* c,
    sum_t* shared, sum_t* workspace, unsigned* counters, int tile, int own_steps, int first_small, int width) {
  const int warp = threadIdx.x / 32, warp_row = warp % WARPS_ROWS, warp_depth = warp / WARPS_ROWS;
  leave(sums, shared + warp_depth * kSmall * kPitch + warp_row * kWarpRows);
  __syncthreads();
  const auto store = [&](int row, int column, sum_t sum) {
    const int of_w = tile * kRows + row, of_x = first_small + column;
    const sum_t one[1] = {sum};
    if (of_w < s.rows)
      store_results<1>(
          c + of_w * s.out_row + of_x * s.out_small, one, end, TURNED ? of_x : of_w, TURNED ? of_w : of_x);
  };
  if (own_steps < s.steps) {
    const int number = own_group() * s.tiles + tile;
    add_parts(share, s.steps, shared, workspace, counters + (kFanIn > 1 ? number * s.counters : number), width, store);
  } else {
    for (int i = threadIdx.x; i < kRows * width; i += kThreads) {
      const int row = s.out_row == 1 ? i % kRows : i / width, column = s.out_row == 1 ? i / kRows : i % width;
      store(row, column, sum_of_warps(shared, row, column));
    }
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kThreads, RESIDENT)
    skinny(const unsigned char* large, const unsigned char* small, out_t* c, const void* const __grid_constant__ bias,
           const void* const __grid_constant__ source, sum_t* workspace, unsigned* counters,
           const __grid_constant__ int num_rows, const __grid_constant__ int num_small,
           const __grid_constant__ int depth, const __grid_constant__ int num_tiles,
           const __grid_constant__ int num_steps, const __grid_constant__ int num_counters,
           const __grid_constant__ float alpha, const __grid_constant__ float beta,
           const __grid_constant__ long long pitch, const __grid_constant__ long long small_row,
           const __grid_constant__ long long small_step, const __grid_constant__ long long out_row,
           const __grid_constant__ long long out_small, const __grid_constant__ long long source_row,
           const __grid_constant__ long long source_column
#if BATCHED
           ,
           const __grid_constant__ long long large_batch, const __grid_constant__ long long small_batch,
           const __grid_constant__ long long out_batch, const __grid_constant__ long long source_batch
#endif
  ) {
  const Sizes s = {num_rows,   num_small, depth,   num_tiles, num_steps,  num_counters,  alpha, beta, pitch,
                   small_row, small_step, out_row, out_small, source_row, source_column};
  extern __shared__ __align__(16) unsigned char memory[];
  sum_t* const shared = reinterpret_cast<sum_t*>(memory);
  const int warp = threadIdx.x / 32, warp_row = warp % WARPS_ROWS, warp_depth = warp / WARPS_ROWS;
  const int first_small = blockIdx.y * kSmall, width = min(kSmall, s.small - first_small);
#if BATCHED
  // From one product to the next: bytes, but elements of C.
  large += blockIdx.z * large_batch;
  small += blockIdx.z * small_batch;
  c += blockIdx.z * out_batch;
  const void* const own_source =
      SOURCE != 0 ? static_cast<const unsigned char*>(source) + blockIdx.z * source_batch : nullptr;
#else
  const void* const& own_source = source;
#endif
  const End finishing = {bias, own_source, s.source_row, s.source_column, s.alpha, s.beta};
  Share share;
  share.all = static_cast<unsigned>(s.tiles) * s.steps;
  const unsigned end = share.begin(blockIdx.x + 1);
#if STAGES == 1
  for (unsigned at = share.begin(blockIdx.x); at < end;) {
    const int tile = at / s.steps, begin = at - tile * s.steps;
    const int stop = min(s.steps, static_cast<int>(begin + (end - at)));
    share.first = tile * s.steps;
    const Rows rows = rows_of(s, large, tile * kRows + warp_row * kWarpRows);
    sum_t sums[kHigh][kNarrow][kWide] = {};
    for (int step = begin; step < stop; ++step) {
      const int k = step * kDepth + warp_depth * kBatch;
      if (is_whole(s, k)) {
        advance<false>(sums, s, rows, small, first_small, k);
      } else if (k < s.depth) {
        advance<true>(sums, s, rows, small, first_small, k);
      }
    }
    end_tile(sums, s, share, finishing, c, shared, workspace, counters, tile, stop - begin, first_small, width);
    at += stop - begin;
  }
#else
  // Loads run a step ahead of what is multiplied, from one tile into the next.
  const unsigned start = share.begin(blockIdx.x);
  int tile = start / s.steps, step = start - tile * s.steps, begun = step;
  int ahead_tile = tile, ahead_step = step;
  Rows rows = rows_of(s, large, tile * kRows + warp_row * kWarpRows);
  sum_t sums[kHigh][kNarrow][kWide] = {};
  const auto load_ahead = [&](Vector(&w)[kUnroll][kVectors]) {
    const int k = ahead_step * kDepth + warp_depth * kBatch;
    if (is_whole(s, k)) {
      load_large<false>(w, s, rows, k);
    } else if (k < s.depth) {
      load_large<true>(w, s, rows, k);
    }
    if (++ahead_step == s.steps) {
      ahead_step = 0;
      rows = rows_of(s, large, ++ahead_tile * kRows + warp_row * kWarpRows);
    }
  };
  const auto turn = [&](unsigned at, const Vector(&w)[kUnroll][kVectors], Vector(&next)[kUnroll][kVectors]) {
    if (at + 1 < end) load_ahead(next);
    const int k = step * kDepth + warp_depth * kBatch;
    if (is_whole(s, k)) {
      multiply_step<false>(sums, w, s, small, first_small, k);
    } else if (k < s.depth) {
      multiply_step<true>(sums, w, s, small, first_small, k);
    }
    if (++step < s.steps && at + 1 < end) return;
    share.first = tile * s.steps;
    end_tile(sums, s, share, finishing, c, shared, workspace, counters, tile, step - begun, first_small, width);
    ++tile, step = 0, begun = 0;
#pragma unroll
    for (int i = 0; i < kHigh * kNarrow * kWide; ++i)
      sums[i / (kNarrow * kWide)][i / kWide % kNarrow][i % kWide] = 0;
  };
  Vector w[2][kUnroll][kVectors];
  if (start < end) load_ahead(w[0]);
  for (unsigned at = start; at < end; at += 2) {
    turn(at, w[0], w[1]);
    if (at + 1 < end) turn(at + 1, w[1], w[0]);
  }
#endif
}
