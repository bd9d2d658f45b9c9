// C = A @ B of fp32: the operand whose rows are wgmma's rows, W (rows, K), lies in shared memory as it is in memory, in
// any order of axes. Consumers read their rows of it into registers, from which wgmma takes them. X (columns, K) is what
// wgmma reads from shared memory, along K.
//
// THREE: every number is the sum of three of bf16, x = high + middle + low. W is split in registers, X was split before
// into three segments of its rows. Of nine products those of the least terms, 2^-23 of all, are left out. Otherwise numbers
// are multiplied as tf32.
//
// Blocks walk over tiles, or over parts of tiles along K. The last block that comes to a tile adds all parts in order.
#include "instructions.cuh"

#include "epilogue.cuh"

#include "tiles.cuh"

constexpr int kConsumers = CONSUMERS, kColumns = COLUMNS, kStages = STAGES;
constexpr int kRows = 64 * kConsumers, kDepth = 32;          // of a tile, and of a slice along K
constexpr int kParts = THREE ? 3 : 1;
constexpr int kPartBytes = kColumns * (THREE ? 64 : 128);    // one part of a slice of X
constexpr int kRowBytes = kRows * 128, kLoadedBytes = kRowBytes + kParts * kPartBytes;
constexpr int kStageBytes = (kLoadedBytes + 1023) / 1024 * 1024;
constexpr int kSlab = 32;                                    // rows of W in 128 bytes, where it does not lie along K
constexpr int kSums = kColumns / 2;                          // of a thread
constexpr int kRegisters = THREE ? 12 : 8;                   // of W's numbers, 16 along K
constexpr int kThreads = 128;
// Slices whose products wgmma adds up. It cuts off what fp32 does not hold, so that long sums would become too small: they
// are added in fp32, rounded.
constexpr int kRun = 2;
static_assert(kColumns % 8 == 0 && kColumns <= 128, "sums and products fit registers");

__device__ __forceinline__ float4 read4(unsigned from) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from));
  return x;
}

__device__ __forceinline__ float2 read2(unsigned from) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from));
  return x;
}

// Two numbers as bf16, and what is left of them.
__device__ __forceinline__ unsigned take_part(float& first, float& second) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  first -= __uint_as_float(both << 16);
  second -= __uint_as_float(both & 0xffff0000u);
  return both;
}

__device__ __forceinline__ void take_parts(unsigned (&to)[kRegisters], int at, float first, float second) {
#pragma unroll
  for (int part = 0; part < kRegisters / 4; ++part) to[4 * part + at] = take_part(first, second);
}

// The row of a tile that a lane's sums belong to: `half` 0 or 1, of the 16 rows of its warp. The order is one in which
// reads of W from shared memory have no conflicts. Where W does not lie along K, 16 bytes hold four rows, and those of a
// line are swizzled by k. tf32 is read at four neighbouring k at once, so that half a warp takes the rows of two pieces of
// 16 bytes that are four apart; three parts are read at every other k, and there the two are neighbours.
__device__ __forceinline__ int row_of(int warp, int group, int half) {
  if constexpr (ROWS_K_MAJOR) return 16 * warp + (group >> 1) + ((group & 1) << 2) + 8 * half;
  if constexpr (THREE) return 16 * warp + 2 * group + half;
  const int piece = 2 * (warp & 1) + (group >> 2) + 2 * (group & 2);
  return warp / 2 * kSlab + 4 * piece + 2 * (group & 1) + half;
}

// 16 numbers along K of a lane's two rows, for wgmma. Where W lies along K, four neighbours along K take the places of
// columns 2 j, 2 j + 1, 2 j + 8 and 2 j + 9; X was written in the same order.
__device__ __forceinline__ void read_rows(unsigned (&to)[kRegisters], unsigned rows, int warp, int lane, int half_slice) {
  const int group = lane / 4, j = lane % 4;
  if constexpr (ROWS_K_MAJOR) {
    const int row = row_of(warp, group, 0);
    const unsigned from = rows + row * 128 + (((4 * half_slice + j) ^ (row & 7)) << 4);
    const float4 upper = read4(from), lower = read4(from + 8 * 128);
    take_parts(to, 0, upper.x, upper.y);
    take_parts(to, 1, lower.x, lower.y);
    take_parts(to, 2, upper.z, upper.w);
    take_parts(to, 3, lower.z, lower.w);
  } else {
    const int row = row_of(warp, group, 0);
    const unsigned slab = rows + row / kSlab * (kDepth * 128);
    const auto at = [&](int k) { return read2(slab + k * 128 + ((row % kSlab / 4 ^ (k & 7)) << 4) + row % 4 * 4); };
    if constexpr (THREE) {
      const int k = 16 * half_slice + 2 * j;
      const float2 first = at(k), second = at(k + 1), third = at(k + 8), fourth = at(k + 9);
      take_parts(to, 0, first.x, second.x);
      take_parts(to, 1, first.y, second.y);
      take_parts(to, 2, third.x, fourth.x);
      take_parts(to, 3, third.y, fourth.y);
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int k = 16 * half_slice + 8 * step + j;
        const float2 first = at(k), second = at(k + 4);
        to[4 * step] = __float_as_uint(first.x), to[4 * step + 1] = __float_as_uint(first.y);
        to[4 * step + 2] = __float_as_uint(second.x), to[4 * step + 3] = __float_as_uint(second.y);
      }
    }
  }
}

// Columns along K in shared memory: atoms of eight rows of 64 bytes (three parts) or 128 bytes, swizzled.
__device__ __forceinline__ unsigned long long columns_descriptor(unsigned from) {
  constexpr unsigned long long kAtom = THREE ? 512 : 1024, kSwizzle = THREE ? 2 : 1;
  return static_cast<unsigned long long>((from & 0x3ffff) >> 4) | 1ull << 16 | (kAtom >> 4) << 32 | kSwizzle << 62;
}

// The first product of a run sets the sums.
__device__ __forceinline__ void multiply(
    float (&sums)[kSums], const unsigned (&rows)[kRegisters], unsigned columns, int adds) {
#if THREE
  const unsigned *const high = rows, *const middle = rows + 4, *const low = rows + 8;
  const auto part = [&](int which) { return columns_descriptor(columns + which * kPartBytes); };
  wgmma(sums, low, part(0), adds);
  wgmma(sums, high, part(2), 1);
  wgmma(sums, middle, part(1), 1);
  wgmma(sums, middle, part(0), 1);
  wgmma(sums, high, part(1), 1);
  wgmma(sums, high, part(0), 1);
#else
  wgmma(sums, rows, columns_descriptor(columns), adds);
  wgmma(sums, rows + 4, columns_descriptor(columns + 32), 1);
#endif
}

struct Raw {  // the operands as they are, for the rare sum that no parts give
  const float *rows, *columns;
  long long row_stride, row_k, column_stride, column_k;
};

// A sum with infinities, NaN, or numbers beside the largest ones of fp32, whose parts would make NaN.
__device__ __forceinline__ float sum_of(const Raw& raw, int row, int column, int depth) {
  const float *w = raw.rows + row * raw.row_stride, *x = raw.columns + column * raw.column_stride;
  float sum = 0.0f;
#pragma unroll 1
  for (int k = 0; k < depth; ++k) {
    sum = fmaf(w[k * raw.row_k], x[k * raw.column_k], sum);
    if (sum != sum) break;
  }
  return sum;
}

__device__ __forceinline__ void store_result(out_t* to, float sum, const End& end, int row, int column) {
  const float x = finish(sum, end, TURNED ? column : row, TURNED ? row : column);
#if OUT < 2
  *to = static_cast<unsigned short>(narrow2(x, 0.0f));
#else
  *to = x;
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads * (kConsumers + 1), 1) fp32_gemm(
    const __grid_constant__ TensorMap rows_map, const __grid_constant__ TensorMap columns_map, out_t* out,
    const void* bias, const void* source, float* partials, unsigned* counters, const float* raw_rows,
    const float* raw_columns, int rows, int columns, int depth, int padded, int row_tiles, int column_tiles, int parts,
    int slices, long long pitch, long long source_row, long long source_column,
    long long row_stride, long long row_k, long long column_stride, long long column_k, float alpha, float beta) {
  extern __shared__ unsigned char memory[];
  __shared__ unsigned long long barriers[2 * kStages];
  __shared__ unsigned is_last[kConsumers];
  const unsigned ring = (shared_address(memory) + 1023) / 1024 * 1024, full = shared_address(barriers);
  const unsigned empty = full + 8 * kStages;
  const Grid grid = {row_tiles, column_tiles, parts, slices};
  const int units = row_tiles * column_tiles * parts;
  begin_ring<kStages, kConsumers>(full, empty);
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
        const int k = slice * kDepth, row = work.row * kRows;
        if constexpr (ROWS_K_MAJOR) {
          load_box<false>(&rows_map, to, barrier, k, row, 0);
        } else {
#pragma unroll
          for (int slab = 0; slab < kRows / kSlab; ++slab)
            load_box<false>(&rows_map, to + slab * (kDepth * 128), barrier, row + slab * kSlab, k, 0);
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          load_box<false>(
              &columns_map, to + kRowBytes + part * kPartBytes, barrier, part * padded + k, work.column * kColumns, 0);
      }
    }
    return;
  }
  more_registers();
  const int warp = thread / 32, lane = thread % 32;
  const End end{bias, source, source_row, source_column, alpha, beta};
  const Raw raw{raw_rows, raw_columns, row_stride, row_k, column_stride, column_k};
  RingPlace<kStages> place;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const Work work = work_of(grid, unit);
    float sums[kSums];
#if THREE
    float products[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#else
    auto& products = sums;
#endif
    unsigned held[2][kRegisters];
    unsigned before = 0;  // the stage of the slice before, whose products may still run
    const int own_rows = group * (64 * 128);
    wait(full + 8 * place.stage, place.parity);
    read_rows(held[0], ring + place.stage * kStageBytes + own_rows, warp, lane, 0);
    for (int slice = work.first; slice < work.last; ++slice) {
      const unsigned from = ring + place.stage * kStageBytes;
      const bool begins = THREE ? (slice - work.first) % kRun == 0 : slice == work.first;
      const bool ends = slice + 1 == work.last || (THREE && (slice - work.first) % kRun == kRun - 1);
      // While products run, what the next ones take is read and split.
      wgmma_fence();
      multiply(products, held[0], from + kRowBytes, !begins);
      wgmma_commit();
      wgmma_wait<1>();
      if (slice > work.first) {
        __syncwarp();
        if (lane == 0) arrive(before);
      }
      read_rows(held[1], from + own_rows, warp, lane, 1);
      wgmma_fence();
      multiply(products, held[1], from + kRowBytes + (THREE ? 32 : 64), 1);
      wgmma_commit();
      wgmma_wait<1>();
      before = empty + 8 * place.stage;
      place.next();
      if (slice + 1 < work.last) {
        wait(full + 8 * place.stage, place.parity);
        read_rows(held[0], ring + place.stage * kStageBytes + own_rows, warp, lane, 0);
      }
      if (ends) {
        wgmma_wait<0>();
#if THREE
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] += products[i];
#endif
      }
    }
    __syncwarp();
    if (lane == 0) arrive(before);
#if SPLITS
    if (!add_parts<kSums, kConsumers>(sums, work, grid, partials, counters, is_last, group, thread)) continue;
#endif
    const int first_row = work.row * kRows + 64 * group, first_column = work.column * kColumns + lane % 4 * 2;
    const int tile_rows[2] = {first_row + row_of(warp, lane / 4, 0), first_row + row_of(warp, lane / 4, 1)};
    unsigned long long odd = 0;  // the sums that are no numbers
    const bool is_whole = first_row + 64 <= rows && (work.column + 1) * kColumns <= columns;
    out_t* to[2];  // of both rows, or of two neighbouring columns where they are rows of C
#pragma unroll
    for (int i = 0; i < 2; ++i)
      to[i] = TURNED ? out + (first_column + i) * pitch : out + tile_rows[i] * pitch + first_column;
#pragma unroll
    for (int block = 0; block < kSums / 4; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile_rows[i / 2], column = first_column + block * 8 + i % 2;
        const float sum = sums[block * 4 + i];
        if (is_whole || (row < rows && column < columns)) {
          if (THREE && !(fabsf(sum) < __int_as_float(0x7f800000))) odd |= 1ull << (block * 4 + i);
          store_result(TURNED ? to[i % 2] + row : to[i / 2] + block * 8 + i % 2, sum, end, row, column);
        }
      }
      if (TURNED) to[0] += 8 * pitch, to[1] += 8 * pitch;
    }
#pragma unroll 1
    while (THREE && odd) {
      const int i = __ffsll(odd) - 1;
      odd &= odd - 1;
      const int row = i / 2 % 2 ? tile_rows[1] : tile_rows[0], column = first_column + i / 4 * 8 + i % 2;
      out_t* const there = TURNED ? out + column * pitch + row : out + row * pitch + column;
      store_result(there, sum_of(raw, row, column, depth), end, row, column);
    }
  }
}
