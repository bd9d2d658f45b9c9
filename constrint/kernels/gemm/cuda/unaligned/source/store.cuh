// How a consumer stores results of 16 bits to rows of C that start anywhere; others it stores as the CUDA GEMM does, whose
// file of this name is included then. Included by kernel.cu, whose constants it needs.
#pragma once
#include "copies.cuh"
#include "lines.cuh"

#if STORES_BOXES || !IS_PLAIN
#include "../../source/store.cuh"
#else

// Stores 16 rows of a box of 64 by 64 results, from a row on: aligned units of 16 bytes, which lie within two units of the
// box, then the elements in front of and behind them one by one.
__device__ __forceinline__ void store_rows(
    unsigned box, out_t* c, long long stride, int first, int height, int width, int lane) {
  constexpr int kVector = kUnit / 2;
  const auto in_front_of = [&](const out_t* to) {
    const unsigned start = start_in_unit(reinterpret_cast<const unsigned char*>(to));
    return min(static_cast<int>((kUnit - start) % kUnit / 2), width);
  };
#pragma unroll 1
  for (int row = first + lane / 8; row < min(first + 16, height); row += 4) {
    out_t* const to = c + row * stride;
    const int at = in_front_of(to) + lane % 8 * kVector, unit = at / kVector;
    if (at + kVector > width) continue;
    const unsigned line = box + row * kLine;
    const Words low = load_words(line + (unit ^ row % 8) * kUnit);
    const Words high = load_words(line + ((unit + 1) % kUnits ^ row % 8) * kUnit);
    *reinterpret_cast<Words*>(to + at) = moved(low, high, at % kVector * 2);
  }
#pragma unroll 1
  for (int row = first + lane / 16; row < min(first + 16, height); row += 2) {
    out_t* const to = c + row * stride;
    const int front = in_front_of(to), behind = front + (width - front) / kVector * kVector;
    const int at = lane % 16 < kVector ? lane % kVector : behind + lane % kVector;
    if (at < (lane % 16 < kVector ? front : width))
      to[at] = load_half(box + row * kLine + (at / kVector ^ row % 8) * kUnit + at % kVector * 2);
  }
}

__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], out_t* c, const Sizes& s, unsigned staging, int first_row, int first_column) {
  const int index = thread_anew(), lane = index % 32, warp = index / 32 % 4, consumer = index / kWarpgroup;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS;
  const int c_rows = TURNED ? s.columns : s.rows, c_columns = TURNED ? s.rows : s.columns;
  // Turned, every warp has some columns of each row of C; else a warp's rows are its own.
  const auto wait_for_rows = [&] {
    if constexpr (TURNED) {
      named_sync(1 + consumer, kWarpgroup);
    } else {
      __syncwarp();
    }
  };
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += 64) {
      wait_for_rows();
#pragma unroll
      for (int j = 0; j < 8 && chunk + 8 * j < kOwnColumns; j += 2) {
        const int at = 4 * (chunk / 8 + j);
        unsigned words[4] = {};
#pragma unroll
        for (int i = 0; i < 4 && at + 2 * i < kSums; ++i)
          words[i] = narrow2(s.end.alpha * sums[block][at + 2 * i], s.end.alpha * sums[block][at + 2 * i + 1]);
        // Of the matrices of 8 by 8, the second has the lower rows, and the third and fourth the next columns.
        const int row = TURNED ? 8 * (j + lane / 16) + lane % 8 : 16 * warp + lane % 16;
        const int unit = TURNED ? 2 * warp + lane / 8 % 2 : j + lane / 16;
        const unsigned address = own + row * kLine + (unit ^ lane % 8) * kUnit;
        if (chunk + 8 * j + 8 < kOwnColumns) {
          store_matrices<(TURNED != 0)>(address, words[0], words[1], words[2], words[3]);
        } else {
          // The address of lanes 16 to 31 is not used.
          store_matrices<(TURNED != 0)>(address, words[0], words[1]);
        }
      }
      wait_for_rows();
      const int left = min(64, kOwnColumns - chunk);
      const int row0 = TURNED ? first_column + chunk : first_row + 64 * block;
      const int column0 = TURNED ? first_row + 64 * block : first_column + chunk;
      const int height = min(TURNED ? left : 64, c_rows - row0), width = min(TURNED ? 64 : left, c_columns - column0);
      store_rows(own, c + row0 * s.stride + column0, s.stride, 16 * warp, height, width, lane);
    }
  }
}
#endif
