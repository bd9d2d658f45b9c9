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
static_assert(!BLOCKS || TURNED || kBlock % kColumns == 0, "a tile's columns share scales");

struct Scales {
  const float *rows, *columns;
  long long row_stride, row_k, column_stride, column_k;  // of blocks of 128 where they are the weights'
};

__device__ __forceinline__ unsigned long long slice_descriptor(unsigned from) {
  return static_cast<unsigned long long>((from & 0x3ffff) >> 4) | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(kThreads * (kConsumers + 1), 1) scaled_gemm(
    const __grid_constant__ TensorMap rows_map, const __grid_constant__ TensorMap columns_map, out_t* out,
    const void* bias, float* partials, unsigned* counters, const float* row_scales, const float* column_scales, int rows,
    int columns, int row_tiles, int column_tiles, int parts, int slices, int in_pairs, long long out_row,
    long long out_column, long long row_stride, long long row_k, long long column_stride, long long column_k) {
  extern __shared__ unsigned char memory[];
  __shared__ unsigned long long barriers[2 * kStages];
  __shared__ unsigned is_last[kConsumers];
  const unsigned ring = (shared_address(memory) + 1023) / 1024 * 1024, full = shared_address(barriers);
  const unsigned empty = full + 8 * kStages;
  const Grid grid = {row_tiles, column_tiles, parts, slices};
  const int units = row_tiles * column_tiles * parts;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, 4 * kConsumers);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int group = threadIdx.x / kThreads, thread = threadIdx.x % kThreads;
  if (group == kConsumers) {
    fewer_registers();
    if (thread != 0) return;
    prefetch_map(&rows_map), prefetch_map(&columns_map);
    RingPlace<kStages> place;
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
      const Work work = work_of(grid, unit);
      for (int slice = work.first; slice < work.last; ++slice, place.next()) {
        const unsigned to = ring + place.stage * kStageBytes, barrier = full + 8 * place.stage;
        wait(empty + 8 * place.stage, place.parity ^ 1);
        expect(barrier, kLoadedBytes);
        load_box<false>(&rows_map, to, barrier, slice * kDepth, work.row * kRows, 0);
        load_box<false>(&columns_map, to + kRowBytes, barrier, slice * kDepth, work.column * kColumns, 0);
      }
    }
    return;
  }
  more_registers();
  const int warp = thread / 32, lane = thread % 32;
  const void* const none = nullptr;
  const long long no_stride = 0;
  const float one = 1.0f, zero = 0.0f;
  const End end{bias, none, no_stride, no_stride, one, zero};
  RingPlace<kStages> place;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const Work work = work_of(grid, unit);
    const int first_row = work.row * kRows + 64 * group, first_column = work.column * kColumns + lane % 4 * 2;
    const int tile_rows[2] = {first_row + 16 * warp + lane / 4, first_row + 16 * warp + lane / 4 + 8};
    float sums[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#if BLOCKS
    // Scales of rows and columns beyond the edge are those of the last ones.
#if TURNED
    const float* const shared_scale = row_scales + min(first_row, rows - 1) / kBlock * row_stride;
#else
    const float* const shared_scale = column_scales + work.column * kColumns / kBlock * column_stride;
    const float* const own_scales[2] = {row_scales + min(tile_rows[0], rows - 1) * row_stride,
                                        row_scales + min(tile_rows[1], rows - 1) * row_stride};
#endif
#endif
    for (int slice = work.first; slice < work.last; ++slice, place.next()) {
      const unsigned from = ring + place.stage * kStageBytes;
#if BLOCKS && TURNED
      const float shared = __ldg(shared_scale + slice * row_k);
      float scales[kSums / 2];
#pragma unroll
      for (int i = 0; i < kSums / 2; ++i) {
        const int column = min(first_column + i / 2 * 8 + i % 2, columns - 1);
        scales[i] = shared * __ldg(column_scales + column * column_stride + slice * column_k);
      }
#elif BLOCKS
      const float shared = __ldg(shared_scale + slice * column_k);
      const float scales[2] = {shared * __ldg(own_scales[0] + slice * row_k), shared * __ldg(own_scales[1] + slice * row_k)};
#endif
      float products[kSums];
      wait(full + 8 * place.stage, place.parity);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma(products, slice_descriptor(from + group * (64 * kDepth) + step * 32),
              slice_descriptor(from + kRowBytes + step * 32), step > 0);
      wgmma_commit();
      wgmma_wait<0>();
      __syncwarp();
      if (lane == 0) arrive(empty + 8 * place.stage);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
#if BLOCKS && TURNED
        sums[i] = fmaf(products[i], scales[i / 4 * 2 + i % 2], sums[i]);
#elif BLOCKS
        sums[i] = fmaf(products[i], scales[i / 2 % 2], sums[i]);
#else
        sums[i] += products[i];
#endif
      }
    }
#if SPLITS
    if (!add_parts<kSums, kConsumers>(sums, work, grid, partials, counters, is_last, group, thread)) continue;
#endif
#if !BLOCKS
    const float of_rows[2] = {__ldg(row_scales + min(tile_rows[0], rows - 1) * row_stride),
                              __ldg(row_scales + min(tile_rows[1], rows - 1) * row_stride)};
#endif
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int row = tile_rows[i / 2 % 2], column = first_column + i / 4 * 8;
      if (row >= rows || column >= columns) continue;
      float pair[2] = {sums[i], sums[i + 1]};
#if !BLOCKS
#pragma unroll
      for (int j = 0; j < 2; ++j)
        pair[j] *= of_rows[i / 2 % 2] * __ldg(column_scales + min(column + j, columns - 1) * column_stride);
#endif
      const bool both = column + 1 < columns;
      const float first = finish(pair[0], end, TURNED ? column : row, TURNED ? row : column);
      const float second =
          both ? finish(pair[1], end, TURNED ? column + 1 : row, TURNED ? row : column + 1) : 0.0f;
      out_t* const to = out + row * out_row + column * out_column;
#if OUT < 2
      const unsigned packed = narrow2(first, second);
      if (in_pairs && both) {
        *reinterpret_cast<unsigned*>(to) = packed;
      } else {
        to[0] = static_cast<unsigned short>(packed);
        if (both) to[out_column] = static_cast<unsigned short>(packed >> 16);
      }
#else
      if (in_pairs && both) {
        *reinterpret_cast<float2*>(to) = make_float2(first, second);
      } else {
        to[0] = first;
        if (both) to[out_column] = second;
      }
#endif
    }
  }
}
