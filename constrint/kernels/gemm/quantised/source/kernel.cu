// C (M, N) = X (M, K) @ W^T where W (N, K) has BITS bits a number, with a scale and a zero for every GROUP numbers along K:
// for few rows of X, at the speed at which memory gives W.
//
// W lies in the order in which mma.sync takes it: a warp reads 512 bytes at a time, 16 rows by 1024 / BITS / 2 along K, 16
// bytes a lane. Numbers less their zeros are whole and have 8 bits: they are multiplied as they are, and the sums of a group
// take its scale in fp32. A block has 128 rows of W and walks along K in chunks of `TILES` such reads. Blocks take even
// shares of all chunks; where several share rows, the last one to come adds their sums in order.
typedef float sum_t;

#include "epilogue.cuh"

constexpr int kWarps = 8, kRows = 16 * kWarps, kThreads = 32 * kWarps;
constexpr int kTile = BITS == 4 ? 64 : 32, kTiles = TILES, kChunk = kTile * kTiles;  // along K
constexpr int kColumns = COLUMNS, kNarrow = kColumns / 8;                           // rows of X, a matrix instruction's
constexpr int kGroups = kChunk > GROUP ? kChunk / GROUP : 1;                        // of a chunk
constexpr int kGroupTiles = kTiles / kGroups;
// Rows of X in shared memory start at banks of their own.
constexpr int kPitch = kChunk * 2 + (BITS == 4 ? 16 : 64);
constexpr int kVectors = kColumns * kChunk / 8 / kThreads;  // of 16 bytes of X, for each thread
constexpr int kSums = 4 * kNarrow;
static_assert(kColumns * kChunk / 8 % kThreads == 0 && kTiles % kGroups == 0, "threads and groups are dealt evenly");
static_assert(GROUP % kTile == 0, "a read lies in one group");

__device__ __forceinline__ uint4 read_once(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
  return x;
}

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&w)[4], unsigned first, unsigned second) {
#if IS_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(first), "r"(second));
}

#if BITS == 4
// 128 (bf16) or 1024 (fp16) and a number of four bits, less 128 or 1024 and the zero: no bit is lost.
__device__ __forceinline__ unsigned widen(unsigned word, int pair, unsigned less) {
  unsigned made;
#if IS_BF16
  const unsigned high = (word >> 4 * pair & 0x000f000fu) | 0x43004300u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(made) : "r"(high), "r"(0x3f803f80u), "r"(less));
#else
  const unsigned high = (word >> 4 * pair & 0x000f000fu) | 0x64006400u;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(made) : "r"(high), "r"(less));
#endif
  return made;
}
#else
// 2^23 and a byte, less 2^23 and the zero, two of them as 16 bits.
__device__ __forceinline__ unsigned widen(unsigned word, int pair, float less) {
  const float first = __uint_as_float(__byte_perm(word, 0x4b000000u, pair ? 0x7652 : 0x7650)) + less;
  const float second = __uint_as_float(__byte_perm(word, 0x4b000000u, pair ? 0x7653 : 0x7651)) + less;
  unsigned made;
#if IS_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
#endif
  return made;
}
#endif

struct Chunk {  // what a warp has of W: numbers, and of each group the scale (low) and the zero (high) of two rows
  uint4 words[kTiles];
  unsigned upper[kGroups], lower[kGroups];
};

struct Sizes {
  int m, n, k, row_blocks, chunks, groups;  // groups of a row
};

// Where a warp's part of a chunk begins.
struct From {
  const uint4* words;
  const unsigned* scales;
};

__device__ __forceinline__ From from_of(
    const uint4* weights, const unsigned* scales, const Sizes& s, int unit, int warp, int lane) {
  const long long tile = static_cast<long long>(unit / s.chunks) * kWarps + warp, chunk = unit % s.chunks;
  return {weights + (tile * s.chunks + chunk) * (kTiles * 32) + lane,
          scales + (tile * s.groups + chunk * kChunk / GROUP) * 16 + lane / 4};
}

__device__ __forceinline__ void load_group(Chunk& to, const From& from, int group) {
#pragma unroll
  for (int i = group * kGroupTiles; i < (group + 1) * kGroupTiles; ++i) to.words[i] = read_once(from.words + i * 32);
  to.upper[group] = __ldg(from.scales + group * 16), to.lower[group] = __ldg(from.scales + group * 16 + 8);
}

// 16 bytes of X for each thread, zeros beyond its edges.
__device__ __forceinline__ void load_rows(
    uint4 (&to)[kVectors], const unsigned short* x, long long stride, const Sizes& s, int chunk, int is_aligned) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = threadIdx.x + i * kThreads, row = vector / (kChunk / 8);
    const int k = chunk * kChunk + vector % (kChunk / 8) * 8;
    to[i] = make_uint4(0, 0, 0, 0);
    if (row >= s.m || k >= s.k) continue;
    const unsigned short* const from = x + row * stride + k;
    if (is_aligned && k + 8 <= s.k) {
      to[i] = __ldg(reinterpret_cast<const uint4*>(from));
    } else {
      unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (k + j < s.k) words[j / 2] |= static_cast<unsigned>(__ldg(from + j)) << 16 * (j % 2);
      to[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

__device__ __forceinline__ float scale_of(unsigned both) {
#if IS_BF16
  return __uint_as_float(both << 16);
#else
  float made;
  asm("cvt.f32.f16 %0, %1;" : "=f"(made) : "h"(static_cast<unsigned short>(both & 0xffffu)));
  return made;
#endif
}

// The zero as what is added to a widened number: both halves of a word, or a float.
#if BITS == 4
__device__ __forceinline__ unsigned less_of(unsigned both) { return __byte_perm(both, 0, 0x3232); }
#else
__device__ __forceinline__ float less_of(unsigned both) { return -8388608.0f - static_cast<float>(both >> 16); }
#endif

// Each group is loaded anew for the next chunk as soon as it was used.
__device__ __forceinline__ void multiply_chunk(
    float (&sums)[kNarrow][4], Chunk& w, const unsigned char* rows, int lane, const From& next, bool has_next) {
  const unsigned char* const own = rows + lane / 4 * kPitch + lane % 4 * (kTile / 2);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const auto upper = less_of(w.upper[group]), lower = less_of(w.lower[group]);
    float products[kNarrow][4] = {};
#pragma unroll
    for (int i = group * kGroupTiles; i < (group + 1) * kGroupTiles; ++i) {
      const unsigned words[4] = {w.words[i].x, w.words[i].y, w.words[i].z, w.words[i].w};
      uint4 x[kNarrow][kTile / 32];
#pragma unroll
      for (int j = 0; j < kNarrow; ++j)
#pragma unroll
        for (int part = 0; part < kTile / 32; ++part)
          x[j][part] = *reinterpret_cast<const uint4*>(own + j * 8 * kPitch + i * kTile * 2 + part * 16);
#pragma unroll
      for (int step = 0; step < kTile / 16; ++step) {
#if BITS == 4
        const unsigned widened[4] = {widen(words[step], 0, upper), widen(words[step], 1, lower),
                                     widen(words[step], 2, upper), widen(words[step], 3, lower)};
#else
        const unsigned widened[4] = {widen(words[2 * step], 0, upper), widen(words[2 * step + 1], 0, lower),
                                     widen(words[2 * step], 1, upper), widen(words[2 * step + 1], 1, lower)};
#endif
#pragma unroll
        for (int j = 0; j < kNarrow; ++j) {
          const uint4& pair = x[j][step / 2];
          multiply(products[j], widened, step % 2 ? pair.z : pair.x, step % 2 ? pair.w : pair.y);
        }
      }
    }
    const float of_upper = scale_of(w.upper[group]), of_lower = scale_of(w.lower[group]);
#pragma unroll
    for (int j = 0; j < kNarrow; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = fmaf(products[j][i], i < 2 ? of_upper : of_lower, sums[j][i]);
    if (has_next) load_group(w, next, group);
  }
}

// The first unit of a block's share.
__device__ __forceinline__ int share_of(int block, int blocks, int units) {
  return static_cast<int>(static_cast<long long>(block) * units / blocks);
}

extern "C" __global__ void __launch_bounds__(kThreads, RESIDENT) quantised_gemm(
    const uint4* weights, const unsigned* scales, const unsigned short* x, out_t* out, const void* bias, float* partials,
    unsigned* counters, int m, int n, int k, int row_blocks, int chunks, int groups, int is_aligned, long long x_stride,
    long long out_stride) {
  __shared__ __align__(16) unsigned char rows[2][kColumns * kPitch];
  __shared__ unsigned is_last;
  const Sizes s = {m, n, k, row_blocks, chunks, groups};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = gridDim.x, block = blockIdx.x;
  const int units = row_blocks * chunks, begin = share_of(block, blocks, units), end = share_of(block + 1, blocks, units);
  if (begin >= end) return;
  const void* const none = nullptr;
  const long long no_stride = 0;
  const float one = 1.0f, zero = 0.0f;
  const End ending{bias, none, no_stride, no_stride, one, zero};
  Chunk held_words;
  uint4 vectors[kVectors];
  const From at_first = from_of(weights, scales, s, begin, warp, lane);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) load_group(held_words, at_first, group);
  load_rows(vectors, x, x_stride, s, begin % chunks, is_aligned);
  float sums[kNarrow][4] = {};
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    unsigned char* const held = rows[(unit - begin) & 1];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = threadIdx.x + i * kThreads;
      *reinterpret_cast<uint4*>(held + vector / (kChunk / 8) * kPitch + vector % (kChunk / 8) * 16) = vectors[i];
    }
    const bool has_next = unit + 1 < end;
    if (has_next) load_rows(vectors, x, x_stride, s, (unit + 1) % chunks, is_aligned);
    __syncthreads();
    const From next = from_of(weights, scales, s, has_next ? unit + 1 : unit, warp, lane);
    multiply_chunk(sums, held_words, held, lane, next, has_next);
    const int row_block = unit / chunks;
    if (unit + 1 < end && (unit + 1) / chunks == row_block) continue;
    // The rows' last chunk of this block.
    bool is_mine = true;
    const int from = row_block * chunks, first = max(from, begin);
    if (first > from || unit + 1 < from + chunks) {
      // Blocks that share these rows, from the one with the first chunk to the one with the last.
      const auto owner = [&](int which) {
        return static_cast<int>(((static_cast<long long>(which) + 1) * blocks - 1) / units);
      };
      const int front = owner(from), back = owner(from + chunks - 1);
      const auto slot = [&](int of) {
        const bool is_first = share_of(of, blocks, units) / chunks == row_block;
        return partials + (2ll * of + (is_first ? 0 : 1)) * (kSums * kThreads) + threadIdx.x;
      };
      float* const own = slot(block);
#pragma unroll
      for (int i = 0; i < kSums; ++i) __stcg(own + i * kThreads, sums[i / 4][i % 4]);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        is_last = atomicAdd(counters + row_block, 1u) == static_cast<unsigned>(back - front);
        if (is_last) counters[row_block] = 0;
        __threadfence();
      }
      __syncthreads();
      is_mine = is_last;
      if (is_mine) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i / 4][i % 4] = 0.0f;
#pragma unroll 1
        for (int of = front; of <= back; ++of) {
          const float* const other = slot(of);
#pragma unroll
          for (int i = 0; i < kSums; ++i) sums[i / 4][i % 4] += __ldcg(other + i * kThreads);
        }
      }
    }
    if (is_mine) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int column = row_block * kRows + warp * 16 + lane / 4 + i % 4 / 2 * 8;
        if (row < m && column < n) {
          const float result = finish(sums[i / 4][i % 4], ending, row, column);
#if OUT < 2
          out[row * out_stride + column] = static_cast<unsigned short>(narrow2(result, 0.0f));
#else
          out[row * out_stride + column] = result;
#endif
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i / 4][i % 4] = 0.0f;
  }
}
