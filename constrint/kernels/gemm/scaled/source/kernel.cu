// C = (A * scale_a) @ (B * scale_b) of fp8, both along K. W (rows, K) are wgmma's rows, X (columns, K) its columns: A and
// B, or B and A where TURNED.
//
// BLOCKS: A has a scale for every row and 128 numbers along K, B one for every 128 columns of C and 128 numbers along K.
// Otherwise A has one for every row and B one for every column, which sums take at their end. Either way sums of 128
// products are added up in fp32: wgmma adds 8-bit products in too few bits.
#include "instructions.cuh"

#include "epilogue.cuh"

#include "tiles.cuh"

constexpr int kConsumers = CONSUMERS, kColumns = COLUMNS, kStages = STAGES;
constexpr int kRows = 64 * kConsumers, kDepth = 128;  // of a tile, and of a slice along K
constexpr int kBlock = 128;                           // columns of C that share a scale of B
constexpr int kRowBytes = kRows * kDepth, kLoadedBytes = (kRows + kColumns) * kDepth;
constexpr int kStageBytes = kLoadedBytes;             // atoms of eight rows of 128 bytes
constexpr int kSums = kColumns / 2, kThreads = 128;
static_assert(kColumns % 8 == 0 && kColumns <= 256, "a matrix instruction");
// Blocks of a cluster have tiles next to each other, and load the side that they share once.
constexpr int kClusterRows = CLUSTER_ROWS, kClusterColumns = CLUSTER_COLUMNS, kCluster = kClusterRows * kClusterColumns;
constexpr unsigned short kAll = (1 << kCluster) - 1;
static_assert(kCluster <= 2 && (kClusterRows == 1 || kColumns % 16 == 0), "a shared side is loaded by halves of atoms");
// Scales of B of a tile of columns: one, or one for every 64 columns.
constexpr int kShared = BLOCKS && !TURNED && kBlock % kColumns != 0 ? kColumns / 64 : 1;
static_assert(!BLOCKS || TURNED || kBlock % kColumns == 0 || kColumns % 64 == 0, "columns share scales");

#if OUT < 2
typedef unsigned pair_t;
#else
typedef float2 pair_t;
#endif

// Scales of rows and columns, for sums at their end.
struct Scales {
  const float *rows, *columns;
  long long row_stride, column_stride;
};

// A slice's: those of blocks of B, and those of a thread's own rows, or columns where they are rows of A.
constexpr int kOwn = TURNED ? kSums / 2 : 2;
struct SliceScales {
  float shared[kShared], own[kOwn];
};

// A block's work of the unit of its cluster, whose grid is of tiles of clusters.
__device__ __forceinline__ Work own_work(const Grid& grid, int unit, int rank) {
  Work work = work_of(grid, unit);
  work.tile = work.tile * kCluster + rank;
  work.row = work.row * kClusterRows + (kClusterRows > 1 ? rank : 0);
  work.column = work.column * kClusterColumns + (kClusterColumns > 1 ? rank : 0);
  return work;
}

// Loads a side of a slice, or a block's half of it for both blocks of the cluster.
template <int kSide, bool kIsShared>
__device__ __forceinline__ void load_side(const TensorMap* map, unsigned to, unsigned barrier, int k, int first, int rank) {
  if constexpr (kIsShared) {
    load_box<true>(map, to + rank * (kSide / 2 * kDepth), barrier, k, first + rank * (kSide / 2), kAll);
  } else {
    load_box<false>(map, to, barrier, k, first, 0);
  }
}

// The half of a matrix descriptor that says where, and all of it.
__device__ __forceinline__ unsigned place_of(unsigned from) { return (from & 0x3ffff) >> 4 | 1u << 16; }
__device__ __forceinline__ unsigned long long descriptor(unsigned place) {
  return static_cast<unsigned long long>(1024u >> 4 | 1u << 30) << 32 | place;
}

// A scale that is asked for here, and not where it is used.
__device__ __forceinline__ float ask(const float* from) {
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scale) : "l"(from));
  return scale;
}

// Finishes and stores a thread's sums. Where the tile is whole nothing is asked, so that loads and stores overlap.
template <bool kIsWhole>
__device__ __forceinline__ void store_tile(
    const float (&sums)[kSums], const Scales& scales, const End& end, out_t* out, long long pitch, int in_pairs,
    const int (&tile_rows)[2], int first_column, int rows, int columns) {
#if !BLOCKS
  const float of_rows[2] = {__ldg(scales.rows + min(tile_rows[0], rows - 1) * scales.row_stride),
                            __ldg(scales.rows + min(tile_rows[1], rows - 1) * scales.row_stride)};
#endif
  out_t* to[2];  // of both rows, or of two neighbouring columns where they are rows of C
#pragma unroll
  for (int i = 0; i < 2; ++i)
    to[i] = TURNED ? out + (first_column + i) * pitch : out + tile_rows[i] * pitch + first_column;
#pragma unroll
  for (int block = 0; block < kSums / 4; ++block) {
    const int column = first_column + block * 8;
#if !BLOCKS
    const float of_columns[2] = {
        __ldg(scales.columns + (kIsWhole ? column : min(column, columns - 1)) * scales.column_stride),
        __ldg(scales.columns + (kIsWhole ? column + 1 : min(column + 1, columns - 1)) * scales.column_stride)};
#endif
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile_rows[half];
      float results[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = sums[block * 4 + half * 2 + i];
#if !BLOCKS
        sum *= of_rows[half] * of_columns[i];
#endif
        const int at = kIsWhole ? column + i : min(column + i, columns - 1);
        const int own = kIsWhole ? row : min(row, rows - 1);
        results[i] = finish(sum, end, TURNED ? at : own, TURNED ? own : at);
      }
      const bool is_first = kIsWhole || (row < rows && column < columns);
      const bool is_second = kIsWhole || (row < rows && column + 1 < columns);
#if OUT < 2
      const unsigned packed = narrow2(results[0], results[1]);
      const unsigned short parts[2] = {static_cast<unsigned short>(packed), static_cast<unsigned short>(packed >> 16)};
#else
      const float2 packed = make_float2(results[0], results[1]);
      const float* const parts = results;
#endif
      if (TURNED) {
        if (is_first) to[0][row] = parts[0];
        if (is_second) to[1][row] = parts[1];
      } else if (in_pairs && is_second) {
        *reinterpret_cast<pair_t*>(to[half] + block * 8) = packed;
      } else {
        if (is_first) to[half][block * 8] = parts[0];
        if (is_second) to[half][block * 8 + 1] = parts[1];
      }
    }
    if (TURNED) to[0] += 8 * pitch, to[1] += 8 * pitch;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads * (kConsumers + 1), 1) scaled_gemm(
    const __grid_constant__ TensorMap rows_map, const __grid_constant__ TensorMap columns_map, out_t* out,
    const void* bias, float* partials, unsigned* counters, const float* row_scales, const float* column_scales, int rows,
    int columns, int row_tiles, int column_tiles, int parts, int slices, int in_pairs, long long pitch,
    long long row_stride, long long row_k, long long column_stride, long long column_k) {
  extern __shared__ unsigned char memory[];
  __shared__ unsigned long long barriers[2 * kStages];
  __shared__ unsigned is_last[kConsumers];
  const unsigned ring = (shared_address(memory) + 1023) / 1024 * 1024, full = shared_address(barriers);
  const unsigned empty = full + 8 * kStages;
  const Grid grid = {row_tiles, column_tiles, parts, slices};  // in tiles of a cluster
  const int units = row_tiles * column_tiles * parts, rank = kCluster > 1 ? static_cast<int>(block_in_cluster()) : 0;
  const int first_unit = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;
  // A stage is empty once the consumers of all blocks that it is loaded for have left it.
  begin_ring<kStages, kConsumers * kCluster>(full, empty);
  if constexpr (kCluster > 1) {
    cluster_arrive();
    cluster_wait();
  }
  const int group = __shfl_sync(0xffffffff, threadIdx.x / kThreads, 0), thread = threadIdx.x % kThreads;
  if (group == kConsumers) {
    fewer_registers();
    if (thread != 0) return;
    prefetch_map(&rows_map), prefetch_map(&columns_map);
    RingPlace<kStages> place;
    for (int unit = first_unit; unit < units; unit += clusters) {
      const Work work = own_work(grid, unit, rank);
      for (int slice = work.first; slice < work.last; ++slice, place.next()) {
        const unsigned to = ring + place.stage * kStageBytes, barrier = full + 8 * place.stage;
        wait(empty + 8 * place.stage, place.parity ^ 1);
        expect(barrier, kLoadedBytes);
        load_side<kRows, (kClusterColumns > 1)>(&rows_map, to, barrier, slice * kDepth, work.row * kRows, rank);
        load_side<kColumns, (kClusterRows > 1)>(
            &columns_map, to + kRowBytes, barrier, slice * kDepth, work.column * kColumns, rank);
      }
    }
    return;
  }
  more_registers();
  const unsigned own_rows = anew(place_of(ring + group * (64 * kDepth))), own_columns = anew(place_of(ring + kRowBytes));
  const int warp = thread / 32, lane = thread % 32;
  const void* const none = nullptr;
  const long long no_stride = 0;
  const float one = 1.0f, zero = 0.0f;
  const End end{bias, none, no_stride, no_stride, one, zero};
  const Scales scales_of_ends{row_scales, column_scales, row_stride, column_stride};
  RingPlace<kStages> place;
  for (int unit = first_unit; unit < units; unit += clusters) {
    const Work work = own_work(grid, unit, rank);
    const int first_row = work.row * kRows + 64 * group, first_column = work.column * kColumns + lane % 4 * 2;
    const int tile_rows[2] = {first_row + 16 * warp + lane / 4, first_row + 16 * warp + lane / 4 + 8};
    float sums[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#if BLOCKS
    // Scales of rows and columns beyond the edge are those of the last ones.
    SliceScales scales, ahead;
    const float *shared_scales[kShared], *own_scales[TURNED ? 1 : 2];
#if TURNED
    const long long shared_k = row_k, own_k = column_k;
    shared_scales[0] = row_scales + min(first_row, rows - 1) / kBlock * row_stride + work.first * row_k;
    own_scales[0] = column_scales + work.first * column_k;
#else
    const long long shared_k = column_k, own_k = row_k;
#pragma unroll
    for (int i = 0; i < kShared; ++i)
      shared_scales[i] = column_scales + min(work.column * kColumns + 64 * i, columns - 1) / kBlock * column_stride +
                         work.first * column_k;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      own_scales[i] = row_scales + min(tile_rows[i], rows - 1) * row_stride + work.first * row_k;
#endif
    const auto ask_scales = [&](SliceScales& to) {
#pragma unroll
      for (int i = 0; i < kShared; ++i) to.shared[i] = ask(shared_scales[i]);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        to.own[i] = TURNED ? ask(own_scales[0] + min(first_column + i / 2 * 8 + i % 2, columns - 1) * column_stride)
                           : ask(own_scales[TURNED ? 0 : i]);
    };
    ask_scales(scales);
#endif
    for (int slice = work.first; slice < work.last; ++slice, place.next()) {
      const unsigned to_rows = own_rows + place.stage * (kStageBytes / 16);
      const unsigned to_columns = own_columns + place.stage * (kStageBytes / 16);
      float products[kSums];
#if BLOCKS
      // Scales come from the L2: they are asked for a slice ahead.
      if (slice + 1 < work.last) {
#pragma unroll
        for (int i = 0; i < kShared; ++i) shared_scales[i] += shared_k;
#pragma unroll
        for (int i = 0; i < (TURNED ? 1 : 2); ++i) own_scales[i] += own_k;
      }
      ask_scales(ahead);
#endif
      wait(full + 8 * place.stage, place.parity);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma(products, descriptor(to_rows + 2 * step), descriptor(to_columns + 2 * step), step > 0);
      wgmma_commit();
#if BLOCKS
      float factors[kShared][kOwn];
#pragma unroll
      for (int i = 0; i < kShared; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) factors[i][j] = scales.own[j] * scales.shared[i];
#endif
      wgmma_wait<0>();
      __syncwarp();
      if constexpr (kCluster > 1) {
        if (lane < kCluster) arrive_at(empty + 8 * place.stage, lane);
      } else {
        if (lane == 0) arrive(empty + 8 * place.stage);
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
#if BLOCKS
        sums[i] = fmaf(products[i], factors[kShared > 1 ? i / 32 : 0][TURNED ? i / 4 * 2 + i % 2 : i / 2 % 2], sums[i]);
#else
        sums[i] += products[i];
#endif
      }
#if BLOCKS
      scales = ahead;
#endif
    }
#if SPLITS
    if (!add_parts<kSums, kConsumers>(sums, work, grid, partials, counters, is_last, group, thread)) continue;
#endif
    const bool is_whole = first_row + 64 <= rows && (work.column + 1) * kColumns <= columns;
    if (is_whole) {
      store_tile<true>(sums, scales_of_ends, end, out, pitch, in_pairs, tile_rows, first_column, rows, columns);
    } else {
      store_tile<false>(sums, scales_of_ends, end, out, pitch, in_pairs, tile_rows, first_column, rows, columns);
    }
  }
  // The other block may still arrive here.
  if constexpr (kCluster > 1) {
    cluster_arrive();
    cluster_wait();
  }
}
