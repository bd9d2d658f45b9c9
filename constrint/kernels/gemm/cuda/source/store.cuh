// How a consumer stores its sums. Included by kernel.cu, whose constants it needs.
#pragma once

#if STORES_BOXES
static_assert(OUT < 2, "boxes take results of 16 bits");
static_assert(SOURCE == 0 || (SOURCE == OUT + 1 && !TURNED), "a source matrix beside boxes lies like C");

#if !IS_PLAIN
// Two elements next to each other, the first of which starts at a multiple of their size.
template <int kType>
__device__ __forceinline__ float2 load_two(const void* from, long long at) {
  if constexpr (kType == 2) {
    const unsigned two = __ldg(reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(from) + at));
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u));
  } else if constexpr (kType == 3) {
    return __ldg(reinterpret_cast<const float2*>(static_cast<const float*>(from) + at));
  } else {
    return make_float2(load_added<kType>(from, at), load_added<kType>(from, at + 1));
  }
}

// Two numbers of a word of 16-bit results.
#if OUT < 2
__device__ __forceinline__ float2 widened(unsigned two) {
#if OUT == 1
  return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u));
#else
  float2 wide;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
      : "=f"(wide.x), "=f"(wide.y)
      : "r"(two));
  return wide;
#endif
}
#endif

// Asks the L2 for a line.
__device__ __forceinline__ void prefetch_line(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// Brings a line to the L1 by a load that nobody waits for.
__device__ __forceinline__ void touch_line(const void* line) {
  unsigned short unused;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(unused) : "l"(line));
}

// The bias of a thread's columns, or of its rows where these are C's columns. That of all 64 columns of a box is loaded at
// once, before whoever stored last is waited for, where registers are left for it.
constexpr int kAhead = kConsumerRegisters - kBlocks * kSums < (SOURCE ? 112 : 96) ? 2 : 8;
struct Added {
  float2 bias[TURNED ? 1 : kAhead];    // where turned: of the thread's first and second row
  float2 other[GATED ? kAhead : 1];    // of second factors
};

__device__ __forceinline__ Added load_addends(const Sizes& s, int row, int column, int columns) {
  Added added = {};
  if constexpr (BIAS != 0 && TURNED) {
    added.bias[0].x = row < s.rows ? load_added<BIAS>(s.end.bias, row) : 0.0f;
    added.bias[0].y = row + 8 < s.rows ? load_added<BIAS>(s.end.bias, row + 8) : 0.0f;
  } else if constexpr (BIAS != 0) {
#pragma unroll
    for (int j = 0; j < kAhead && 8 * j < columns; ++j) {
      // C has whole units of eight columns.
      const int at = column + 8 * j;
      if (at < s.columns) added.bias[j] = load_two<BIAS>(s.end.bias, at);
#if GATED
      if (at < s.columns) added.other[j] = load_two<BIAS>(s.end.source, at);
#endif
    }
  }
  return added;
}

// A warp's rows of the source matrix in the columns of a box: whole units of eight columns, four rows at a time.
struct Units {
  uint4 of[SOURCE ? 4 : 1];
};

__device__ __forceinline__ Units load_source(const Sizes& s, int first_row, int first_column, int lane, int columns) {
  Units units = {};
  if constexpr (SOURCE != 0) {
    const int column = lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + lane / 8 + 4 * i;
      const long long at = row * s.end.source_row + first_column + column;
      if (row < s.rows && column < columns && first_column + column < s.columns)
        units.of[i] = __ldg(reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(s.end.source) + at));
    }
  }
  return units;
}

// Puts them where the box's results will be, so that every thread finds the elements of its sums.
__device__ __forceinline__ void place_source(const Units& units, unsigned to, int warp, int lane, int pitch, int columns) {
  if constexpr (SOURCE != 0) {
    const int unit = lane % 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * i;
      if (unit * 8 < columns)
        store_unit(to + (16 * warp + row) * pitch + (pitch == 128 ? (unit ^ row % 8) * 16 : unit * 16), units.of[i]);
    }
    __syncwarp();
  }
}

// Two results of a thread next to each other: number 2 * j of its first row and 2 * j + 1 of its second row. With GATED
// the sums of their second factors lie `kOther` further on.
template <int kOther>
__device__ __forceinline__ unsigned finish_two(
    const sum_t* sums, const End& end, const Added& added, int number, unsigned source) {
  float x = end.alpha * static_cast<float>(sums[0]), y = end.alpha * static_cast<float>(sums[1]);
  if constexpr (BIAS != 0 && TURNED) {
    const float bias = number % 2 ? added.bias[0].y : added.bias[0].x;
    x += bias, y += bias;
  } else if constexpr (BIAS != 0) {
    x += added.bias[number / 2].x, y += added.bias[number / 2].y;
  }
  if constexpr (SOURCE != 0) {
    const float2 two = widened(source);
    x += end.beta * two.x, y += end.beta * two.y;
  }
  x = activate(x), y = activate(y);
#if GATED
  float other = end.alpha * static_cast<float>(sums[kOther]), next = end.alpha * static_cast<float>(sums[kOther + 1]);
  if constexpr (BIAS != 0) other += added.other[number / 2].x, next += added.other[number / 2].y;
  x *= other, y *= next;
#endif
  return narrow2(x, y);
}

#if TRACED
// Two results of a thread next to each other, the first of which is at a row and a column of wgmma. Sums beyond C are
// finished with operands of its last row and column, and no box stores them.
__device__ __forceinline__ unsigned trace_two(
    const sum_t* sums, const Sizes& s, const Added& added, int number, unsigned source, int row, int column) {
  float bias[2] = {}, other[2] = {};
  if constexpr (BIAS != 0 && TURNED) {
    bias[0] = bias[1] = number % 2 ? added.bias[0].y : added.bias[0].x;
  } else if constexpr (BIAS != 0) {
    bias[0] = added.bias[number / 2].x, bias[1] = added.bias[number / 2].y;
  }
  if constexpr (SOURCE != 0) {
    const float2 two = widened(source);
    other[0] = two.x, other[1] = two.y;
  }
  float results[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at_row = min(row, s.rows - 1), at_column = min(column + i, s.columns - 1);
    results[i] = traced(
        static_cast<float>(sums[i]), bias[i], other[i], s.end.operands, TURNED ? at_column : at_row,
        TURNED ? at_row : at_column);
  }
  return narrow2(results[0], results[1]);
}
#endif

// What is read once a tile's sums are complete: asks the L2 for its source matrix, and the L1 for its bias.
__device__ __forceinline__ void prefetch_addends(const Sizes& s, int first_row, int first_column) {
  constexpr int kLine = 128;
  const int thread = threadIdx.x % kWarpgroup;
  if constexpr (SOURCE != 0) {
    constexpr int kLines = (kOutColumns * 2 + kLine - 1) / kLine;
    for (int item = thread; item < kBlocks * 64 * kLines; item += kWarpgroup) {
      const int row = first_row + item / kLines, column = first_column + item % kLines * (kLine / 2);
      if (row < s.rows && column < s.columns)
        prefetch_line(static_cast<const unsigned short*>(s.end.source) + row * s.end.source_row + column);
    }
  }
  if constexpr (BIAS != 0) {
    constexpr int kBytes = BIAS == 4 ? 8 : BIAS == 3 || BIAS == 5 ? 4 : 2, kNumber = TURNED ? kOwnRows : kOutColumns;
    const int first = TURNED ? first_row : first_column, left = (TURNED ? s.rows : s.columns) - first;
    const int at = thread * (kLine / kBytes);
    if (at < kNumber && at < left) {
      touch_line(static_cast<const unsigned char*>(s.end.bias) + static_cast<long long>(first + at) * kBytes);
#if GATED
      touch_line(static_cast<const unsigned char*>(s.end.source) + static_cast<long long>(first + at) * kBytes);
#endif
    }
  }
}
#endif

// 16-bit results go through shared memory to the TMA unit, in boxes of 64 rows and 64 columns of wgmma; what is left of a
// row of sums is a box of its own. Rows of a box are 128 bytes, swizzled; those of a narrower one are not.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], const OutMaps& maps, const Sizes& s, unsigned staging, int first_row,
    int first_column) {
  const int index = thread_anew(), lane = index % 32, warp = index / 32 % 4, consumer = index / kWarpgroup;
  const bool is_first = index % kWarpgroup == 0;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS;
  constexpr int kRest = kOutColumns % 64;
#if SOURCE
  Units units = load_source(s, first_row + 16 * warp, first_column, lane, kOutColumns);
#endif
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOutColumns; chunk += 64) {
      constexpr int kChunks = (kOutColumns + 63) / 64;
      // Buffers are taken in turns; a unit of an odd number of boxes ends with the one that the next begins with.
      constexpr int kUnread = kBlocks * kChunks % 2 ? 0 : BUFFERS - 1;
      const int number = block * kChunks + chunk / 64, width = min(64, kOutColumns - chunk);
      const bool is_narrow = !TURNED && width < 64;
      const unsigned to = own + number % BUFFERS * kStagingBytes;
#if !IS_PLAIN
      const int own_row = first_row + 64 * block + 16 * warp + lane / 4, own_column = first_column + lane % 4 * 2;
      Added added = load_addends(s, own_row, own_column + chunk, kOutColumns - chunk);
#endif
      // Whoever asked the unit to store what lay here knows when it was read.
      if (is_first) {
        if (number == 0) {
          wait_stored<kUnread>();
        } else {
          wait_stored<BUFFERS - 1>();
        }
      }
      named_sync(1 + consumer, kWarpgroup);
#if SOURCE
      place_source(units, to, warp, lane, is_narrow ? kRest * 2 : 128, width);
      // The next box's elements are under way while this one is finished.
      if (chunk + 64 < kOutColumns) {
        units = load_source(
            s, first_row + 64 * block + 16 * warp, first_column + chunk + 64, lane, kOutColumns - chunk - 64);
      } else if (block + 1 < kBlocks) {
        units = load_source(s, first_row + 64 * (block + 1) + 16 * warp, first_column, lane, kOutColumns);
      }
#endif
#pragma unroll
      for (int j = 0; j < 8 && chunk + 8 * j < kOutColumns; j += 2) {
        const int at = 4 * (chunk / 8 + j);
        const bool is_pair = chunk + 8 * j + 8 < kOutColumns;
        unsigned words[4] = {};
#if !IS_PLAIN
        if (j > 0 && j % kAhead == 0)
          added = load_addends(s, own_row, own_column + chunk + 8 * j, kOutColumns - chunk - 8 * j);
#endif
#if !IS_PLAIN
        unsigned source[4] = {};
#endif
#if SOURCE
        // See below.
        const unsigned from = is_narrow ? to + (16 * warp + lane % 16) * (kRest * 2) + (j + lane / 16) * 16
                                        : to + (16 * warp + lane % 16) * 128 + ((j + lane / 16) ^ lane % 8) * 16;
        if (is_pair) {
          load_matrices(from, source[0], source[1], source[2], source[3]);
        } else {
          load_matrices(from, source[0], source[1]);
        }
#endif
#pragma unroll
        for (int i = 0; i < 4 && at + 2 * i < kSums / kHalves; ++i)
#if IS_PLAIN
          words[i] = narrow2(s.end.alpha * sums[block][at + 2 * i], s.end.alpha * sums[block][at + 2 * i + 1]);
#elif TRACED
          words[i] = trace_two(&sums[block][at + 2 * i], s, added, 2 * (j % kAhead) + i, source[i], own_row + i % 2 * 8,
                               own_column + chunk + 8 * (j + i / 2));
#else
          words[i] = finish_two<kSums / kHalves>(&sums[block][at + 2 * i], s.end, added, 2 * (j % kAhead) + i, source[i]);
#endif
        // Of the matrices of 8 by 8, the second has the lower rows, and the third and fourth the next columns.
        const int row = TURNED ? 8 * (j + lane / 16) + lane % 8 : 16 * warp + lane % 16;
        const int unit = TURNED ? 2 * warp + lane / 8 % 2 : j + lane / 16;
        const unsigned address =
            is_narrow ? to + row * (kRest * 2) + unit * 16 : to + row * 128 + ((unit ^ lane % 8) * 16);
        if (is_pair) {
          store_matrices<(TURNED != 0)>(address, words[0], words[1], words[2], words[3]);
        } else {
          // The address of lanes 16 to 31 is not used.
          store_matrices<(TURNED != 0)>(address, words[0], words[1]);
        }
      }
      fence_for_boxes();
      named_sync(1 + consumer, kWarpgroup);
      if (is_first) {
        const int x = TURNED ? first_row + 64 * block : first_column + chunk;
        const int y = TURNED ? first_column + chunk : first_row + 64 * block;
        store_box(width < 64 ? maps.rest : maps.whole, to, x, y);
      }
    }
  }
}

#endif

// A grouped product has both: results in boxes, and tiles in the midst of which the rows of a product end.
#if !STORES_BOXES || GROUPED
// Sums go through shared memory, 24 columns of wgmma at a time, and are finished in the order of C: a loop that is not
// unrolled takes few registers beside the sums that wait, and reads and writes rows of C.
__device__ __forceinline__ void store(
    const sum_t (&sums)[kBlocks][kSums], out_t* c, const Sizes& s, unsigned staging, int first_row, int first_column) {
  constexpr int kChunk = 24, kWidth = TURNED ? 64 : kChunk, kPitch = kWidth * 4 + 16;
  constexpr int kThreads = TURNED ? kWarpgroup : 32;
  static_assert((TURNED ? kChunk : 64) * kPitch <= kStagingBytes, "a chunk fits");
  const int index = thread_anew(), lane = index % 32, warp = index / 32 % 4, consumer = index / kWarpgroup;
  const unsigned own = staging + consumer * kStagingBytes * BUFFERS + (TURNED ? 0 : warp * 16 * kPitch);
  const int c_rows = TURNED ? s.columns : s.rows, c_columns = TURNED ? s.rows : s.columns;
  const int thread = TURNED ? index % kWarpgroup : lane;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kOwnColumns; chunk += kChunk) {
#pragma unroll
      for (int i = chunk / 2; i < kSums && i < (chunk + kChunk) / 2; i += 2) {
        const int row = lane / 4 + (i & 2) * 4, column = i / 4 * 8 - chunk + lane % 4 * 2;
        if constexpr (TURNED) {
          store_shared(own + column * kPitch + (16 * warp + row) * 4, sums[block][i]);
          store_shared(own + (column + 1) * kPitch + (16 * warp + row) * 4, sums[block][i + 1]);
        } else {
          store_shared(own + row * kPitch + column * 4, sums[block][i], sums[block][i + 1]);
        }
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
      const int left = min(kChunk, kOwnColumns - chunk);
      const int row0 = TURNED ? first_column + chunk : first_row + 64 * block + 16 * warp;
      const int column0 = TURNED ? first_row + 64 * block : first_column + chunk;
      const int height = min(TURNED ? left : 16, c_rows - row0), width = min(TURNED ? 64 : left, c_columns - column0);
      if (s.is_aligned) {
        // Rows of C are whole vectors of 16 bytes, so that none passes its end.
        finish_rows<4, kWidth, kPitch, kThreads>(
            own, c, s.stride, s.end, row0, column0, height, width, thread);
      } else {
        finish_rows<1, kWidth, kPitch, kThreads>(own, c, s.stride, s.end, row0, column0, height, width, thread);
      }
      if constexpr (TURNED) {
        named_sync(1 + consumer, kWarpgroup);
      } else {
        __syncwarp();
      }
    }
  }
}
#endif
