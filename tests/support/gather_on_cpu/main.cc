// The part of the CUDA GEMM that gathers operands, for the CPU: the TMA unit by its definition, shared memory as an array.
#include <cstdint>
#include <cstring>

#define __device__
#define __forceinline__ inline

// A matrix as the TMA unit knows it: whole rows of so many elements; boxes are eight rows of 128 bytes.
struct TensorMap {
  const unsigned char* base;
  int64_t rows, length, stride_bytes;
};

struct Words {
  unsigned word[4];
};

static unsigned char shared[1 << 18];
static int touched[1 << 14];                       // how often a place of 16 bytes was swapped
static const unsigned char *operand, *operand_end; // what may be read
static int64_t pitch_bytes, row_bytes;
static int strays;

static bool is_of_a_row(const unsigned char* at, int bytes) {
  if (at < operand || at + bytes > operand_end) return false;
  const int64_t place = (at - operand) % pitch_bytes;
  return place + bytes <= row_bytes;
}

template <bool kIsShared>
inline void load_box(const TensorMap* map, unsigned to, unsigned, int x, int y, unsigned short) {
  constexpr int kLength = 128 / ELEMENT;
  for (int row = 0; row < 8; ++row)
    for (int i = 0; i < kLength; ++i) {
      const unsigned line = to + row * 128, place = i * ELEMENT;
      unsigned char* put = shared + line + ((place / 16 ^ (line / 128) % 8) * 16) + place % 16;
      std::memset(put, 0, ELEMENT);
      if (x + i < 0 || x + i >= map->length || y + row < 0 || y + row >= map->rows) continue;
      const unsigned char* from = map->base + (y + row) * map->stride_bytes + int64_t(x + i) * ELEMENT;
      if (is_of_a_row(from, ELEMENT)) {
        std::memcpy(put, from, ELEMENT);
      } else {
        ++strays;
      }
    }
}

inline Words load_words(unsigned from) {
  Words v;
  std::memcpy(&v, shared + from, 16);
  ++touched[from / 16];
  return v;
}
inline void store_words(unsigned to, const Words& v) { std::memcpy(shared + to, &v, 16); }

#include "gather.cuh"

// A slice that begins at (first, k), loaded by all blocks that share it. Gives how many elements were read that are of no
// row, and how many places were swapped more than once.
extern "C" int gather(
    const TensorMap* maps, const unsigned char* begin, const unsigned char* end, unsigned char* slice, int64_t pitch,
    int64_t length, unsigned starts, int first, int k, int rows, int swaps) {
  constexpr int kGroups = groups_of<(K_MAJOR != 0), ELEMENT>(WIDTH);
  operand = begin, operand_end = end, pitch_bytes = pitch, row_bytes = length, strays = 0;
  std::memset(shared, 0x7f, sizeof shared);
  std::memset(touched, 0, sizeof touched);
  const GatheredMaps gathered = {maps, starts};
  for (int share = 0; share < SHARES; ++share)
    gather_slice<(K_MAJOR != 0), ELEMENT, WIDTH, SHARES>(gathered, 0, 0, first, k, rows, share, 3);
  // Threads one after the other: each swaps places of its own.
  for (int thread = 0; swaps && thread < 32 * kSwapWarps; ++thread)
    swap_lines<kGroups, 0>(0, 0, thread / 32, thread % 32);
  std::memcpy(slice, shared, kGroups * kGroupBytes);
  int twice = 0;
  for (int count : touched) twice += count > 1;
  return strays + twice;
}
