// C (M, N) = X (M, K) @ W^T where W (N, K) has BITS bits a number, with a scale and a zero for every GROUP numbers along K:
// for few rows of X, at the speed at which memory gives W.
//
// W lies in the order in which mma.sync takes it: a warp reads 512 bytes at a time, 16 rows by 1024 / BITS / 2 along K, 16
// bytes a lane. Numbers less their zeros are whole and have 8 bits: they are multiplied as they are, and the sums of a group
// take its scale in fp32. A block has an even share of all tiles of 16 rows and takes ROWS of them at a time; its warps, and
// the blocks of its cluster, divide K among them, TILES reads each in turn, and add up their sums at the end. No warp waits
// for another one before: each reads as far ahead as its registers hold, or, with stages, STAGES - 1 turns
// ahead into shared memory, where each lane finds what it has copied itself. The last tiles of a block are as many as the
// others, and some are computed twice where its share is no multiple: no tile is looked at by itself.
//
// READS and GROUPS, where they are not 0, are those of a row: then the compiler knows how far apart the tiles of a turn
// lie. With IS_WHOLE X has 16 bytes at multiples of 16 wherever W has numbers; with X_TURNS turns in shared memory have
// their vectors of X there, too, then, which leaves registers to sums of more tiles: all of these share the vectors.
//
// With OF_SUMS zeros are not subtracted from numbers: a group's zero times the sum of its part of X is subtracted from
// the product of numbers as they were widened. Matrix instructions that multiply ones make these sums, once for all tiles.
// An infinity of X then gives NaN.
typedef float sum_t;

#include "epilogue.cuh"
#include "numbers.cuh"

constexpr int kWarps = WARPS, kThreads = 32 * kWarps, kRows = ROWS, kCluster = SPLIT_K, kStages = STAGES;
constexpr int kTile = BITS == 4 ? 64 : 32, kTiles = TILES;  // numbers along K of a read, and reads in turn
constexpr int kNarrow = COLUMNS / 8;                        // matrix instructions of the rows of X
constexpr int kGroups = kTile * kTiles > GROUP ? kTile * kTiles / GROUP : 1;  // of such reads
constexpr int kGroupTiles = kTiles / kGroups;
constexpr int kParts = kTile / 32;                      // of 16 bytes of X, for each thread and read
constexpr int kSums = 4 * kNarrow, kShare = kRows * kSums * 32;  // of a thread and a tile, and of a warp
static_assert(kTiles % kGroups == 0 && GROUP % kTile == 0, "a read lies in one group");

__device__ __forceinline__ uint4 read_once(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
  return x;
}

// What a warp holds of a tile of W: numbers, and of each group the scale (low) and the zero (high) of two rows.
struct Held {
#if STAGES == 0
  uint4 words[kTiles];
#endif
  unsigned upper[kGroups], lower[kGroups];
};

struct Sizes {
  int m, n, k, reads, groups;  // reads and groups of a row
};

// Loads the tile that is `row` after `tile`.
__device__ __forceinline__ void load(
    Held& to, const uint4* weights, const unsigned* scales, const Sizes& s, int tile, int row, int read, int lane) {
#if STAGES == 0
  const uint4* const words = weights + (static_cast<long long>(tile) * s.reads + read) * 32 + lane + row * s.reads * 32;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) to.words[i] = read_once(words + i * 32);
#endif
  const unsigned* const both = scales + (static_cast<long long>(tile) * s.groups + read / (GROUP / kTile)) * 16 + lane / 4 +
                               row * s.groups * 16;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) to.upper[i] = __ldg(both + i * 16), to.lower[i] = __ldg(both + i * 16 + 8);
}

// Where a warp is: the first of its tiles, the read, and how many tiles are done before.
struct Place {
  int tile, read, done;
  __device__ __forceinline__ void next(int first, int last, int begin, int latest) {
    read += kWarps * kTiles;
    if (read >= last) read = first, done += kRows, tile = min(begin + done, latest);
  }
};

// What a thread multiplies of X: 16 or 32 bytes of a row for each read, zeros beyond the edges.
struct Vectors {
  uint4 of[kTiles][kNarrow][kParts];
};

#if STAGES > 1
#define X_IN_TURNS (X_TURNS && IS_WHOLE)
constexpr int kVectors = kTiles * kNarrow * kParts;  // of X, for each thread and turn

// Turns of a warp in shared memory, 16 bytes of a lane for each read.
struct Ring {
  uint4* own;      // of this lane, in the first stage of its warp
  uint4* vectors;  // likewise of X

  __device__ __forceinline__ uint4* at(int stage, int row) const { return own + (stage * kRows + row) * kTiles * 32; }

#if X_IN_TURNS
  // Copies the vectors of X for one turn, zeros beyond its rows.
  __device__ __forceinline__ void copy_rows(
      const unsigned short* x, long long stride, const Sizes& s, int read, int stage, int lane) const {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(vectors + stage * kVectors * 32));
#pragma unroll
    for (int j = 0; j < kNarrow; ++j) {
      const int row = j * 8 + lane / 4;
      const unsigned bytes = row < s.m ? 16 : 0;
      const unsigned short* const from = x + (bytes ? row * stride : 0) + read * kTile + lane % 4 * (8 * kParts);
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to + ((i * kNarrow + j) * kParts + part) * 512),
                       "l"(from + i * kTile + part * 8), "r"(bytes)
                       : "memory");
    }
  }

  __device__ __forceinline__ void read_rows(Vectors& to, int stage) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      to.of[i / (kNarrow * kParts)][i / kParts % kNarrow][i % kParts] = vectors[(stage * kVectors + i) * 32];
  }
#endif

  // Copies the reads of one turn; every turn is a group of copies, also one beyond the end, which has none.
  __device__ __forceinline__ void copy(
      const uint4* weights, const unsigned short* x, long long x_stride, const Sizes& s, const Place& turn, int share,
      int stage, int lane) const {
    if (turn.done < share) {
#if X_IN_TURNS
      copy_rows(x, x_stride, s, turn.read, stage, lane);
#endif
      const uint4* const from = weights + (static_cast<long long>(turn.tile) * s.reads + turn.read) * 32 + lane;
      const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(at(stage, 0)));
#pragma unroll
      for (int row = 0; row < kRows; ++row)
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
          asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to + (row * kTiles + i) * 512),
                       "l"(from + (row * s.reads + i) * 32)
                       : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};
#else
#define X_IN_TURNS 0
#endif

__device__ __forceinline__ void load_rows(
    Vectors& to, const unsigned short* x, long long stride, const Sizes& s, int read, int lane, int is_aligned) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int j = 0; j < kNarrow; ++j)
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int row = j * 8 + lane / 4, k = (read + i) * kTile + lane % 4 * (8 * kParts) + part * 8;
        uint4& vector = to.of[i][j][part];
        vector = make_uint4(0, 0, 0, 0);
        if (row >= s.m || (!IS_WHOLE && k >= s.k)) continue;
        const unsigned short* const from = x + row * stride + k;
        if (IS_WHOLE || (is_aligned && k + 8 <= s.k)) {
          vector = __ldg(reinterpret_cast<const uint4*>(from));
        } else {
          unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
          for (int at = 0; at < 8; ++at)
            if (k + at < s.k) words[at / 2] |= static_cast<unsigned>(__ldg(from + at)) << 16 * (at % 2);
          vector = make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
}

// Sums of X over a group's part of a turn, of two rows of X for each matrix instruction; none where numbers lose their zeros.
struct Totals {
#if OF_SUMS
  float of[kGroups][kNarrow][2];
#endif
};

__device__ __forceinline__ Totals totals_of(const Vectors& x) {
  Totals made;
#if OF_SUMS
  const unsigned ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int j = 0; j < kNarrow; ++j) {
      float sums[4] = {};
#pragma unroll
      for (int step = 0; step < kGroupTiles * (kTile / 16); ++step) {
        const uint4& pair = x.of[group * kGroupTiles + step / (kTile / 16)][j][step % (kTile / 16) / 2];
        multiply(sums, ones, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
      }
      made.of[group][j][0] = sums[0], made.of[group][j][1] = sums[1];
    }
#endif
  return made;
}

__device__ __forceinline__ void multiply_held(
    float (&sums)[kSums], const Held& w, const uint4* numbers, const Vectors& x, const Totals& totals, const Masks& masks) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const auto upper = less_of(w.upper[group]), lower = less_of(w.lower[group]);
    float products[kNarrow][4] = {};
#pragma unroll
    for (int i = group * kGroupTiles; i < (group + 1) * kGroupTiles; ++i) {
#if STAGES == 0
      const uint4& four = w.words[i];
#else
      const uint4 four = numbers[i * 32];
#endif
      const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int step = 0; step < kTile / 16; ++step) {
#if BITS == 4
        const unsigned widened[4] = {widen(words[step], 0, upper, masks), widen(words[step], 1, lower, masks),
                                     widen(words[step], 2, upper, masks), widen(words[step], 3, lower, masks)};
#else
        const unsigned widened[4] = {widen(words[2 * step], 0, upper, masks), widen(words[2 * step + 1], 0, lower, masks),
                                     widen(words[2 * step], 1, upper, masks), widen(words[2 * step + 1], 1, lower, masks)};
#endif
#pragma unroll
        for (int j = 0; j < kNarrow; ++j) {
          const uint4& pair = x.of[i][j][step / 2];
          multiply(products[j], widened, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
        }
      }
    }
#if OF_SUMS
    const float less[2] = {less_as_float(w.upper[group]), less_as_float(w.lower[group])};
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      float& product = products[i / 4][i % 4];
      product = fmaf(less[i % 4 / 2], totals.of[group][i / 4][i % 2], product);
    }
#endif
    const float of_upper = scale_of(w.upper[group]), of_lower = scale_of(w.lower[group]);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = fmaf(products[i / 4][i % 4], i % 4 < 2 ? of_upper : of_lower, sums[i]);
  }
}

#if SPLIT_K > 1
#include "cluster.cuh"
#endif

extern "C" __global__ void __launch_bounds__(kThreads, RESIDENT) quantised_gemm(
    const uint4* weights, const unsigned* scales, const unsigned short* x, out_t* out, const void* bias, int m, int n, int k,
    int tiles, int reads, int groups, int is_aligned, unsigned mask, long long x_stride, long long out_stride) {
  extern __shared__ __align__(16) float shares[];  // sums of each warp, in the order of warps, then stages of each
  const Sizes s = {m, n, k, READS ? READS : reads, GROUPS ? GROUPS : groups};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = blockIdx.x % kCluster, block = blockIdx.x / kCluster, blocks = gridDim.x / kCluster;
  const int begin = share_of(block, blocks, tiles), end = share_of(block + 1, blocks, tiles), share = end - begin;
  const int latest = max(begin, end - kRows);  // of a share of fewer tiles than kRows the next block's is read, too
  // Reads of this warp: kTiles in turn.
  const int first = (share_of(rank, kCluster, s.reads / kTiles) + warp) * kTiles;
  const int last = share_of(rank + 1, kCluster, s.reads / kTiles) * kTiles;
  const void* const none = nullptr;
  const long long no_stride = 0;
  const float one = 1.0f, zero = 0.0f;
  const End ending{bias, none, no_stride, no_stride, one, zero};
#if BITS == 4
  const Masks masks = {mask, mask << 4};
#else
  const Masks masks;
#endif
  Held held[kRows];
  Vectors vectors;
#if STAGES > 1
  uint4* const turns = reinterpret_cast<uint4*>(shares + kWarps * kShare) + lane;
  const Ring ring = {turns + warp * (kStages * kRows * kTiles * 32),
                     turns + (kWarps * kRows * kTiles + warp * kVectors) * kStages * 32};
  Place ahead = {begin, first, 0};
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < kStages - 1 && first < last; ++i) {
    ring.copy(weights, x, x_stride, s, ahead, share, i, lane);
    ahead.next(first, last, begin, latest);
  }
#endif
  if (first < last) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) load(held[i], weights, scales, s, begin, i, first, lane);
#if !X_IN_TURNS
    load_rows(vectors, x, x_stride, s, first, lane, is_aligned);
#endif
  }
#pragma unroll 1
  for (int done = 0; done < share; done += kRows) {
    const int tile = min(begin + done, latest);
    float sums[kRows][kSums];
#pragma unroll
    for (int i = 0; i < kRows * kSums; ++i) sums[i / kSums][i % kSums] = 0.0f;
#pragma unroll 1
    for (int read = first; read < last; read += kWarps * kTiles) {
      Place after = {tile, read, done};
      after.next(first, last, begin, latest);
      const bool is_last = after.done >= share;
#if !X_IN_TURNS
      Vectors next = vectors;
      if (after.read != read && !is_last) load_rows(next, x, x_stride, s, after.read, lane, is_aligned);
#endif
#if STAGES > 1
      // The turn after the last that is under way takes the place of the one before this.
      ring.copy(weights, x, x_stride, s, ahead, share, stage ? stage - 1 : kStages - 1, lane);
      ahead.next(first, last, begin, latest);
      asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
#endif
#if X_IN_TURNS
      ring.read_rows(vectors, stage);
#endif
      const Totals totals = totals_of(vectors);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#if STAGES > 1
        const uint4* const numbers = ring.at(stage, i);
#else
        const uint4* const numbers = nullptr;
#endif
        multiply_held(sums[i], held[i], numbers, vectors, totals, masks);
        if (!is_last) load(held[i], weights, scales, s, after.tile, i, after.read, lane);
      }
#if !X_IN_TURNS
      vectors = next;
#endif
#if STAGES > 1
      stage = stage + 1 < kStages ? stage + 1 : 0;
#endif
    }
    // Sums of all warps, in their order, and of all blocks of a cluster, in theirs.
    float* const own = shares + warp * kShare + lane;
#pragma unroll
    for (int i = 0; i < kRows * kSums; ++i) own[i * 32] = sums[i / kSums][i % kSums];
    __syncthreads();
#if SPLIT_K > 1
#pragma unroll 1
    for (int at = threadIdx.x; at < kShare; at += kThreads) {
      float sum = shares[at];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += shares[i * kShare + at];
      shares[at] = sum;
    }
    meet_cluster();
#endif
#pragma unroll 1
    for (int at = rank * kThreads + threadIdx.x; at < kShare; at += kCluster * kThreads) {
#if SPLIT_K > 1
      float sum = read_of(shares + at, 0);
#pragma unroll
      for (int i = 1; i < kCluster; ++i) sum += read_of(shares + at, i);
#else
      float sum = shares[at];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum += shares[i * kShare + at];
#endif
      const int which = at / 32 % kSums, of = tile + at / 32 / kSums;
      const int row = which / 4 * 8 + at % 4 * 2 + which % 2, column = of * 16 + at % 32 / 4 + which % 4 / 2 * 8;
      if (of < end && row < m && column < n) {
        const float result = finish(sum, ending, row, column);
#if OUT < 2
        out[row * out_stride + column] = static_cast<unsigned short>(narrow2(result, 0.0f));
#else
        out[row * out_stride + column] = result;
#endif
      }
    }
#if SPLIT_K > 1
    meet_cluster();
#else
    if (done + kRows < share) __syncthreads();
#endif
  }
}
