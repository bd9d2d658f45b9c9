// C (M, N) = X (M, K) @ W^T where W (N, K) has BITS bits a number, with a scale and a zero for every GROUP numbers along K:
// for few rows of X, at the speed at which memory gives W.
//
// W lies as `kernel.cu` has it: 512 bytes are 16 rows by 1024 / BITS / 2 along K, a read of a warp, and the reads of 16 rows,
// a tile, lie one after the other. Two warps copy: chunks of kChunk reads along K, of up to kBlockRows tiles, go to a ring of
// STAGES stages, numbers as one bulk copy a tile, scales and X as vectors. None of these need registers, and all are under way
// at once. The other warps multiply: ROW_WARPS of them divide the tiles of a chunk, ROWS each, K_WARPS divide its reads, TILES
// each. A vector of X that a warp reads serves all of its tiles. Numbers less their zeros are whole and have 8 bits: they
// are multiplied as they are, and the sums of a group take its scale in fp32.
//
// A block, or a cluster of SPLIT_K blocks that divide K, has an even share of all tiles, kBlockRows at a time: one pass with
// ONE_PASS, where sums of warps take the place of the stages. X_ROWS are the rows of X in a stage, COLUMNS those of sums.
typedef float sum_t;
#define OF_SUMS 0

#include "epilogue.cuh"
#include "numbers.cuh"
#include "ring.cuh"

constexpr int kWarps = ROW_WARPS * K_WARPS, kConsumers = 32 * kWarps, kThreads = kConsumers + 64;
constexpr int kRows = ROWS, kBlockRows = ROWS * ROW_WARPS, kCluster = SPLIT_K, kStages = STAGES;
constexpr int kTile = BITS == 4 ? 64 : 32;            // numbers along K of a read
constexpr int kChunk = TILES * K_WARPS, kChunkK = kChunk * kTile;
constexpr int kGroupTiles = GROUP / kTile;            // reads of a group
constexpr int kChunkGroups = kChunkK > GROUP ? kChunkK / GROUP : 1;
constexpr int kNarrow = COLUMNS / 8;                  // matrix instructions of the rows of X
constexpr int kParts = kTile / 32;                    // of 16 bytes of X, for each thread and read
constexpr int kSums = 4 * kNarrow, kShare = kBlockRows * kSums * 32;  // of a thread and a tile, and of warps for one part of K
constexpr int kMostStep = 4 / kParts;                 // 128 numbers: with more, vectors of X leave too few registers
constexpr int kStepMost = kGroupTiles < kMostStep ? kGroupTiles : kMostStep;
constexpr int kStep = TILES < kStepMost ? TILES : kStepMost;  // reads whose products take a scale together
constexpr int kUnrolled = kMostStep < 2 * kStep ? 2 : kMostStep / kStep;  // steps; with more, too much is read ahead

// A stage: numbers, scales with zeros, X. Rows of X begin in banks that differ for those that are read together.
constexpr int kPitch = kChunkK * 2 + (BITS == 4 ? 16 : 64);
constexpr int kWordBytes = kChunk * 512, kScaleBytes = kChunkGroups * 64;  // of a tile
constexpr int kScalesAt = kBlockRows * kWordBytes, kRowsAt = kScalesAt + kBlockRows * kScaleBytes;
constexpr int kStageBytes = (kRowsAt + X_ROWS * kPitch + 127) / 128 * 128;
constexpr int kBarrierBytes = 128;
static_assert(kStages * 16 <= kBarrierBytes && TILES % kStep == 0 && GROUP % kTile == 0, "a step lies in one group");

struct Sizes {
  int m, n, k, reads, groups;  // reads and groups of a row
};

// The chunks along K of a block, and its tiles.
struct Share {
  int first, last, begin, end;
};

// Where in the ring a warp is.
struct Turn {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Puts columns of X into a stage, zeros beyond the last one, where rows do not begin at multiples of 16 bytes.
__device__ __forceinline__ void store_rows(
    unsigned char* to, const unsigned short* x, long long stride, int m, int columns, int lane) {
  for (int row = 0; row < m; ++row)
    for (int at = lane; at < kChunkK; at += 32)
      *reinterpret_cast<unsigned short*>(to + row * kPitch + at * 2) = at < columns ? __ldg(x + row * stride + at) : 0;
}

// The same by copies of vectors, which are under way together.
template <bool kIsWhole>
__device__ __forceinline__ void copy_rows(
    unsigned to, const unsigned short* x, long long stride, int m, int columns, int lane) {
  constexpr int kLanes = kChunkK < 256 ? kChunkK / 8 : 32, kRowsAtOnce = 32 / kLanes;
  const int first = lane / kLanes, column = lane % kLanes * 8;
  const unsigned short* from = x + first * stride + column;
  unsigned at = to + first * kPitch + column * 2;
#pragma unroll 4
  for (int row = first; row < m; row += kRowsAtOnce) {
#pragma unroll
    for (int i = 0; i < kChunkK / 8 / kLanes; ++i) {
      const int left = kIsWhole ? 8 : min(max(columns - column - i * kLanes * 8, 0), 8);
      copy_vector(at + i * kLanes * 16, left ? from + i * kLanes * 8 : x, left * 2);
    }
    from += kRowsAtOnce * stride, at += kRowsAtOnce * kPitch;
  }
}

// One thread starts the copies of numbers.
__device__ __forceinline__ void fill_numbers(
    unsigned stages, unsigned full, unsigned empty, const uint4* weights, const Sizes& s, const Share& share) {
  const unsigned long long policy = read_once_policy();
  Turn turn;
  for (int tile = share.begin; tile < share.end; tile += kBlockRows) {
    const int tiles = min(kBlockRows, share.end - tile);
#pragma unroll 1
    for (int chunk = share.first; chunk < share.last; ++chunk, turn.next()) {
      const unsigned to = stages + turn.stage * kStageBytes, barrier = full + turn.stage * 8;
      wait(empty + turn.stage * 8, turn.parity ^ 1);
      expect(barrier, tiles * kWordBytes);
      const uint4* words = weights + (static_cast<long long>(tile) * s.reads + chunk * kChunk) * 32;
#pragma unroll 2
      for (int i = 0; i < tiles; ++i, words += s.reads * 32)
        copy_once(to + i * kWordBytes, words, kWordBytes, barrier, policy);
    }
  }
}

// A warp copies scales and X.
__device__ __forceinline__ void fill_others(
    unsigned char* stages, unsigned full, unsigned empty, const unsigned* scales, const unsigned short* x, long long stride,
    const Sizes& s, const Share& share, int is_aligned, int lane) {
  constexpr int kVectors = kScaleBytes / 16;  // of a tile's scales
  Turn turn;
  for (int tile = share.begin; tile < share.end; tile += kBlockRows) {
    const int tiles = min(kBlockRows, share.end - tile);
#pragma unroll 1
    for (int chunk = share.first; chunk < share.last; ++chunk, turn.next()) {
      unsigned char* const stage = stages + turn.stage * kStageBytes;
      const unsigned to = shared_address(stage), barrier = full + turn.stage * 8;
      const unsigned short* const columns_of_x = x + chunk * kChunkK;
      const int columns = min(kChunkK, s.k - chunk * kChunkK);
      wait(empty + turn.stage * 8, turn.parity ^ 1);
      const unsigned* const both =
          scales + (static_cast<long long>(tile) * s.groups + chunk * kChunk / kGroupTiles) * 16;
      for (int i = lane; i < tiles * kVectors; i += 32)
        copy_vector(to + kScalesAt + i * 16, both + i / kVectors * s.groups * 16 + i % kVectors * 4, 16);
      if (!is_aligned) {
        store_rows(stage + kRowsAt, columns_of_x, stride, s.m, columns, lane);
      } else if (columns == kChunkK) {
        copy_rows<true>(to + kRowsAt, columns_of_x, stride, s.m, columns, lane);
      } else {
        copy_rows<false>(to + kRowsAt, columns_of_x, stride, s.m, columns, lane);
      }
      arrive_with_vectors(barrier);
    }
  }
}

__device__ __forceinline__ uint4 read_vector(const unsigned char* from) { return *reinterpret_cast<const uint4*>(from); }

// The products of a stage with a warp's reads; pointers are those of a lane.
__device__ __forceinline__ void multiply_stage(
    float (&sums)[kRows][kSums], const unsigned char* words, const unsigned char* both, const unsigned char* x, int x_row,
    int first, const Masks& masks) {
#pragma unroll kUnrolled
  for (int at = 0; at < TILES; at += kStep) {
    uint4 vectors[kStep][kNarrow][kParts];
#pragma unroll
    for (int i = 0; i < kStep; ++i)
#pragma unroll
      for (int j = 0; j < kNarrow; ++j)
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          vectors[i][j][part] = read_vector(x + j * x_row + (at + i) * kTile * 2 + part * 16);
    const int group = kChunkGroups == 1 ? 0 : (first + at) / kGroupTiles;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const unsigned* const scale = reinterpret_cast<const unsigned*>(both + row * ROW_WARPS * kScaleBytes + group * 64);
      const unsigned upper = scale[0], lower = scale[8];
      const auto less_upper = less_of(upper), less_lower = less_of(lower);
      float products[kNarrow][4] = {};
#pragma unroll
      for (int i = 0; i < kStep; ++i) {
        const uint4 four = read_vector(words + row * ROW_WARPS * kWordBytes + (at + i) * 512);
        const unsigned held[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int step = 0; step < kTile / 16; ++step) {
#if BITS == 4
          const unsigned widened[4] = {widen(held[step], 0, less_upper, masks), widen(held[step], 1, less_lower, masks),
                                       widen(held[step], 2, less_upper, masks), widen(held[step], 3, less_lower, masks)};
#else
          const unsigned widened[4] = {
              widen(held[2 * step], 0, less_upper, masks), widen(held[2 * step + 1], 0, less_lower, masks),
              widen(held[2 * step], 1, less_upper, masks), widen(held[2 * step + 1], 1, less_lower, masks)};
#endif
#pragma unroll
          for (int j = 0; j < kNarrow; ++j) {
            const uint4& pair = vectors[i][j][step / 2];
            multiply(products[j], widened, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
          }
        }
      }
      const float of_upper = scale_of(upper), of_lower = scale_of(lower);
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        sums[row][i] = fmaf(products[i / 4][i % 4], i % 4 < 2 ? of_upper : of_lower, sums[row][i]);
    }
  }
}

// Adds up what warps have of K, in their order, and blocks in theirs; what one thread adds is finished and stored.
__device__ __forceinline__ void store_sums(
    float* shares, const Sizes& s, const End& ending, out_t* out, long long stride, int rank, int tile, int end, int thread) {
#if SPLIT_K > 1
  if (K_WARPS > 1 && thread < kConsumers) {
#pragma unroll 1
    for (int at = thread; at < kShare; at += kConsumers) {
      float sum = shares[at];
#pragma unroll
      for (int i = 1; i < K_WARPS; ++i) sum += shares[i * kShare + at];
      shares[at] = sum;
    }
  }
  meet_cluster();
#endif
  if (thread < kConsumers) {
#pragma unroll 1
    for (int at = rank * kConsumers + thread; at < kShare; at += kCluster * kConsumers) {
#if SPLIT_K > 1
      float parts[kCluster];
#pragma unroll
      for (int i = 0; i < kCluster; ++i) parts[i] = read_of(shares + at, i);
#else
      float parts[K_WARPS];
#pragma unroll
      for (int i = 0; i < K_WARPS; ++i) parts[i] = shares[i * kShare + at];
#endif
      float sum = parts[0];
#pragma unroll
      for (int i = 1; i < (kCluster > 1 ? kCluster : K_WARPS); ++i) sum += parts[i];
      const int lane = at % 32, which = at / 32 % kSums, of = tile + at / 32 / kSums;
      const int row = which / 4 * 8 + lane % 4 * 2 + which % 2, column = of * 16 + lane / 4 + which % 4 / 2 * 8;
      if (of < end && row < s.m && column < s.n) {
        const float result = finish(sum, ending, row, column);
#if OUT < 2
        out[row * stride + column] = static_cast<unsigned short>(narrow2(result, 0.0f));
#else
        out[row * stride + column] = result;
#endif
      }
    }
  }
#if SPLIT_K > 1
  meet_cluster();
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) quantised_gemm_stream(
    const uint4* weights, const unsigned* scales, const unsigned short* x, out_t* out, const void* bias, int m, int n, int k,
    int tiles, int reads, int groups, int is_aligned, unsigned mask, long long x_stride, long long out_stride) {
  extern __shared__ __align__(128) unsigned char memory[];  // barriers, stages, and sums of warps unless these are alone
  const Sizes s = {m, n, k, reads, groups};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = blockIdx.x % kCluster, block = blockIdx.x / kCluster, blocks = gridDim.x / kCluster;
  const int chunks = (k + kChunkK - 1) / kChunkK;
  const Share share = {share_of(rank, kCluster, chunks), share_of(rank + 1, kCluster, chunks),
                       share_of(block, blocks, tiles), share_of(block + 1, blocks, tiles)};
  unsigned char* const stages = memory + kBarrierBytes;
  float* const shares = reinterpret_cast<float*>(stages + (ONE_PASS ? 0 : kStages * kStageBytes));
  const unsigned full = shared_address(memory), empty = full + kStages * 8;
  const void* const none = nullptr;
  const long long no_stride = 0;
  const float one = 1.0f, zero = 0.0f;
  const End ending{bias, none, no_stride, no_stride, one, zero};
  if (warp == kWarps) {
    if (lane == 0) {
      for (int i = 0; i < kStages; ++i) barrier_init(full + i * 8, 33), barrier_init(empty + i * 8, kWarps);
      fence_barrier_init();
    }
    meet_warp();
    announce<kThreads>();
    if (is_elected()) fill_numbers(shared_address(stages), full, empty, weights, s, share);
    meet_warp();
#if SPLIT_K > 1
    store_sums(shares, s, ending, out, out_stride, rank, share.begin, share.end, threadIdx.x);
#endif
    return;
  }
  wait_for_barriers<kThreads>();
  if (warp > kWarps) {
    fill_others(stages, full, empty, scales, x, x_stride, s, share, is_aligned, lane);
    meet_warp();
#if SPLIT_K > 1
    store_sums(shares, s, ending, out, out_stride, rank, share.begin, share.end, threadIdx.x);
#endif
    return;
  }
#if BITS == 4
  const Masks masks = {mask, mask << 4};
#else
  const Masks masks;
#endif
  const int own_row = warp % ROW_WARPS, own_k = warp / ROW_WARPS, first = own_k * TILES;
  // Rows of X that there are not have sums that nobody stores: they are those of the last.
  const int x_first = min(lane / 4, m - 1), x_second = min(lane / 4 + 8, m - 1);
  const unsigned char* const own_words = stages + own_row * kWordBytes + first * 512 + lane * 16;
  const unsigned char* const own_scales =
      stages + kScalesAt + own_row * kScaleBytes + lane / 4 * 4;
  const unsigned char* const own_x = stages + kRowsAt + x_first * kPitch + first * kTile * 2 + lane % 4 * (16 * kParts);
  Turn turn;
#pragma unroll 1
  for (int tile = share.begin; tile < share.end; tile += kBlockRows) {
    float sums[kRows][kSums];
#pragma unroll
    for (int i = 0; i < kRows * kSums; ++i) sums[i / kSums][i % kSums] = 0.0f;
#pragma unroll 1
    for (int chunk = share.first; chunk < share.last; ++chunk, turn.next()) {
      const int at = turn.stage * kStageBytes;
      wait(full + turn.stage * 8, turn.parity);
      multiply_stage(sums, own_words + at, own_scales + at, own_x + at, (x_second - x_first) * kPitch, first, masks);
      meet_warp();
      if (lane == 0) arrive(empty + turn.stage * 8);
    }
    meet<kConsumers>();  // all have read the stages, or the sums of the pass before
    float* const own = shares + own_k * kShare + own_row * (kSums * 32) + lane;
#pragma unroll
    for (int i = 0; i < kRows * kSums; ++i)
      own[(i / kSums * ROW_WARPS * kSums + i % kSums) * 32] = sums[i / kSums][i % kSums];
    meet<kConsumers>();
    store_sums(shares, s, ending, out, out_stride, rank, tile, share.end, threadIdx.x);
  }
}
