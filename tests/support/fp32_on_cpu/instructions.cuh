// What the fp32 GEMM needs beside `gemm_on_cpu/instructions.cuh` (here `base.cuh`): boxes of several swizzles, and
// matrix instructions whose rows come from registers, which they read as late as they may: when they are waited for.
#pragma once
#define COLUMNS_K_MAJOR 1
#define load_box load_box_of_base
#define wgmma wgmma_of_base
#define wgmma_wait wgmma_wait_of_base
#include "base.cuh"
#undef load_box
#undef wgmma
#undef wgmma_wait

struct alignas(16) float4 {
  float x, y, z, w;
};
inline float __int_as_float(int bits) { return __uint_as_float(bits); }
inline int __ffsll(unsigned long long bits) { return __builtin_ffsll(bits); }
inline void __stcg(float* to, float x) { *to = x; }
inline float __ldcg(const float* from) { return *from; }

// Swizzles of rows of 128 and of 64 bytes.
inline unsigned swizzled(unsigned at, int bytes) { return at ^ (at >> 7 & (bytes == 128 ? 7 : 3)) << 4; }

template <bool kIsShared>
inline void load_box(const TensorMap* map, unsigned to, unsigned barrier, int x, int y, unsigned short) {
  const int element = map->swizzle / map->box_length;
  for (int row = 0; row < map->box_rows; ++row)
    for (int i = 0; i < map->box_length; ++i) {
      unsigned char* const put = shared_memory + swizzled(to + row * map->swizzle + i * element, map->swizzle);
      std::memset(put, 0, element);
      if (x + i < map->length && y + row < map->rows)
        std::memcpy(put, map->base + (y + row) * map->pitch + (x + i) * element, element);
    }
  Arrivals& a = arrivals_of(barrier);
  a.bytes -= map->box_rows * map->box_length * element;
  settle(a);
}

struct FromRegisters {
  float* sums;
  int number;
  const unsigned* rows;
  unsigned long long columns;
  int adds, group;
};
static std::map<int, std::vector<FromRegisters>> from_registers;
template <int kNumber>
inline void wgmma(float (&sums)[kNumber], const unsigned* rows, unsigned long long columns, int adds) {
  from_registers[fibers::current].push_back({sums, kNumber, rows, columns, adds, fibers::self().groups});
}

inline float number_of(unsigned word, int half) { return __uint_as_float(half ? word & 0xffff0000u : word << 16); }

// The element of a row of 16 of the warp, and of a column, at k of one instruction.
inline float row_element(size_t which, int row, int k) {
  const int first = fibers::current - fibers::self().thread % 32;
#if THREE
  const int lane = row % 8 * 4 + k % 8 / 2;
  return number_of(from_registers[first + lane][which].rows[row / 8 + 2 * (k / 8)], k % 2);
#else
  const int lane = row % 8 * 4 + k % 4;
  return __uint_as_float(from_registers[first + lane][which].rows[row / 8 + 2 * (k / 4)]);
#endif
}
inline float column_element(unsigned long long descriptor, int i, int k) {
  const unsigned start = (descriptor & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
  const int bytes = descriptor >> 62 == 1 ? 128 : 64, element = THREE ? 2 : 4;
  const unsigned at = swizzled(start + i / 8 * stride + i % 8 * bytes + k * element, bytes);
  unsigned word = 0;
  std::memcpy(&word, shared_memory + at, element);
  return __uint_as_float(THREE ? word << 16 : word);
}

template <int kGroups>
inline void wgmma_wait() {
  auto& mine = from_registers[fibers::current];
  const int thread = fibers::self().thread, lane = thread % 32;
  fibers::wait_for_warp();
  size_t done = 0;
  for (; done < mine.size() && mine[done].group < fibers::self().groups - kGroups; ++done)
    for (int j = 0; j < mine[done].number; ++j) {
      const int row = lane / 4 + j % 4 / 2 * 8, column = j / 4 * 8 + lane % 4 * 2 + j % 2;
      float sum = mine[done].adds ? mine[done].sums[j] : 0.0f;
      for (int k = 0; k < (THREE ? 16 : 8); ++k)
        sum += row_element(done, row, k) * column_element(mine[done].columns, column, k);
      mine[done].sums[j] = sum;
    }
  fibers::wait_for_warp();
  mine.erase(mine.begin(), mine.begin() + done);
}
