// What `gemm/cuda/source/instructions.cuh` does, for the CPU: barriers of shared memory, the TMA unit and matrix instructions
// by their definitions. What is asynchronous happens as late as it may: copies and matrix instructions when they are waited
// for.
#pragma once
#include "grid.h"

#define __grid_constant__
#define __align__(n) alignas(n)

#define ELEMENT_BYTES (DTYPE < 2 ? 2 : DTYPE == 2 ? 4 : 1)
#if DTYPE == 4
typedef int sum_t;
#else
typedef float sum_t;
#endif

using std::max;
using std::min;
#define Place RingPlace  // of the kernel: its name is taken

// A matrix as the TMA unit knows it.
struct TensorMap {
  const unsigned char* base;
  long long rows, length, pitch, box_rows, box_length;  // elements, but the pitch in bytes
  long long swizzle;                                    // bytes of a box's row that are swizzled, or 0
  long long matrices, step;                             // along a third axis, and bytes from one to the next
};
#if BATCHED
struct MatrixMap {
  const TensorMap* map;
  int place;
};
inline const TensorMap& map_of(MatrixMap of) { return *of.map; }
inline long long place_of(MatrixMap of) { return of.place; }
#else
typedef const TensorMap* MatrixMap;
inline const TensorMap& map_of(MatrixMap of) { return *of; }
inline long long place_of(MatrixMap) { return 0; }
#endif
struct OutMaps {
  MatrixMap whole, rest;
};

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned long long>(a) * b >> 32; }
inline void __syncwarp() { fibers::wait_for_warp(); }
inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - shared_memory);
}
inline unsigned block_in_cluster() { return 0; }
inline void fewer_registers() {}
inline void more_registers() {}
inline int thread_anew() { return threadIdx.x; }
inline int anew(int number) { return number; }
inline void cluster_arrive() {}
inline void cluster_wait() {}
inline void wait_for_launches() {}

struct Arrivals {  // of a barrier in shared memory: who is awaited in all, who still is, bytes, and the phase
  int all, awaited, bytes, phase;
};
static std::map<std::pair<int, unsigned>, Arrivals> arrivals;
inline Arrivals& arrivals_of(unsigned barrier) { return arrivals[{fibers::self().block, barrier}]; }
inline void settle(Arrivals& a) {
  if (a.awaited == 0 && a.bytes == 0) a.awaited = a.all, a.phase ^= 1;
}
inline void barrier_init(unsigned barrier, int count) { arrivals_of(barrier) = {count, count, 0, 0}; }
inline void fence_barrier_init() {}
inline void arrive(unsigned barrier) {
  Arrivals& a = arrivals_of(barrier);
  --a.awaited;
  settle(a);
}
inline void arrive_at(unsigned barrier, unsigned) { arrive(barrier); }
inline void expect(unsigned barrier, unsigned bytes) {
  arrivals_of(barrier).bytes += bytes;
  arrive(barrier);
}
inline void wait(unsigned barrier, unsigned parity) {
  while (arrivals_of(barrier).phase == static_cast<int>(parity)) fibers::give_way();
}

inline void prefetch_map(const TensorMap*) {}
template <bool kIsShared>
inline void load_box(MatrixMap of, unsigned to, unsigned barrier, int x, int y, unsigned short) {
  const TensorMap* const map = &map_of(of);
  const long long place = place_of(of);
  for (int row = 0; row < map->box_rows; ++row)
    for (int i = 0; i < map->box_length; ++i) {
      const unsigned at = to + row * 128 + i * ELEMENT_BYTES;
      unsigned char* const put = shared_memory + (at ^ (at >> 7 & 7) << 4);
      std::memset(put, 0, ELEMENT_BYTES);
      if (x + i < map->length && y + row < map->rows && place < map->matrices)
        std::memcpy(put, map->base + place * map->step + (y + row) * map->pitch + (x + i) * ELEMENT_BYTES, ELEMENT_BYTES);
    }
  Arrivals& a = arrivals_of(barrier);
  a.bytes -= map->box_rows * map->box_length * ELEMENT_BYTES;
  settle(a);
}

inline void named_sync(int barrier, int threads) { fibers::wait(fibers::own().named[barrier], threads); }
inline void named_arrive(int barrier, int threads) {
  fibers::Barrier& b = fibers::own().named[barrier];
  if (++b.came == threads) b.came = 0, ++b.turn;
}
inline bool named_any(int barrier, int threads, bool says) {
  static std::map<std::pair<int, int>, int> votes;
  int& vote = votes[{fibers::self().block, barrier}];
  named_sync(barrier, threads);
  if (says) vote = 1;
  named_sync(barrier, threads);
  const bool any = vote;
  named_sync(barrier, threads);
  vote = 0;
  named_sync(barrier, threads);
  return any;
}
inline unsigned count(unsigned* counter) { return (*counter)++; }
inline void tell(unsigned* counter) { ++*counter; }
inline unsigned told(const unsigned* counter) {
  fibers::give_way();
  return *counter;
}

constexpr int kConsumerRegisters = 232, kShare = 512;
constexpr bool kDealsOut = CONSUMERS > 1;

template <int kRows, int kColumns>
inline void fence_sums(sum_t (&)[kRows][kColumns]) {}
inline void store_partials(sum_t* to, const sum_t (&four)[4]) { std::memcpy(to, four, sizeof four); }
inline void load_partials(const sum_t* from, sum_t (&four)[4]) { std::memcpy(four, from, sizeof four); }
// What threads put into a box: the TMA unit sees it after a fence of the thread that stored it.
struct Unfenced {
  unsigned to;
  unsigned short number;
};
static std::map<int, std::vector<Unfenced>> unfenced;
inline void fence_for_boxes() {
  for (const Unfenced& one : unfenced[fibers::current]) std::memcpy(shared_memory + one.to, &one.number, 2);
  unfenced[fibers::current].clear();
}
// A box that a thread has stored is read from shared memory as late as it may be: when the thread waits for it.
struct Box {
  MatrixMap map;
  unsigned from;
  int x, y;
};
static std::map<int, std::vector<Box>> boxes;
inline void store_box(MatrixMap map, unsigned from, int x, int y) {
  boxes[fibers::current].push_back({map, from, x, y});
}
template <int kLeft>
inline void wait_stored() {
  auto& mine = boxes[fibers::current];
  for (; mine.size() > kLeft; mine.erase(mine.begin())) {
    const TensorMap& map = map_of(mine[0].map);
    unsigned char* const base = const_cast<unsigned char*>(map.base) + place_of(mine[0].map) * map.step;
    const int bytes = 2, row_bytes = map.box_length * bytes;
    for (int row = 0; row < map.box_rows; ++row)
      for (int i = 0; i < map.box_length; ++i) {
        unsigned at = mine[0].from + row * row_bytes + i * bytes;
        if (map.swizzle) at ^= (at >> 7 & 7) << 4;
        if (mine[0].x + i >= map.length || mine[0].y + row >= map.rows) continue;
        std::memcpy(base + (mine[0].y + row) * map.pitch + (mine[0].x + i) * bytes,
                    shared_memory + at, bytes);
      }
  }
}
// Two floats as two numbers of 16 bits, the first one low: to the nearest, halves to even.
inline unsigned packed_on_cpu(float low, float high) {
  const auto rounded = [](float x) {
    const unsigned word = __float_as_uint(x);
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16;
  };
  static_assert(DTYPE != 0, "numbers of fp16 are not made here");
  return rounded(low) | rounded(high) << 16;
}
// Matrices of 8 by 8 numbers: of each a lane has two of row lane / 4, and eight lanes give the addresses of its rows.
template <bool kIsTransposed, typename... Words_>
inline void store_matrices(unsigned to, Words_... words) {
  const unsigned own[] = {words...};
  const int lane = fibers::self().thread % 32;
  for (int i = 0; i < static_cast<int>(sizeof...(words)); ++i)
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4, column = lane % 4 * 2 + half;
      const unsigned line = __shfl_sync(~0u, to, 8 * i + (kIsTransposed ? column : row));
      const unsigned short number = own[i] >> 16 * half;
      unfenced[fibers::current].push_back({line + 2 * (kIsTransposed ? row : column), number});
    }
}
template <typename... Words_>
inline void load_matrices(unsigned from, Words_&... words) {
  unsigned* const own[] = {&words...};
  const int lane = fibers::self().thread % 32;
  for (int i = 0; i < static_cast<int>(sizeof...(words)); ++i) {
    const unsigned line = __shfl_sync(~0u, from, 8 * i + lane / 4);
    std::memcpy(own[i], shared_memory + line + lane % 4 * 4, 4);
  }
}
inline void store_unit(unsigned to, uint4 unit) { std::memcpy(shared_memory + to, &unit, 16); }
inline void store_shared(unsigned to, sum_t value) { std::memcpy(shared_memory + to, &value, 4); }
inline void store_shared(unsigned to, sum_t first, sum_t second) {
  store_shared(to, first), store_shared(to + 4, second);
}
template <int kNumber>
inline void load_sums(unsigned from, sum_t (&sums)[kNumber]) {
  std::memcpy(sums, shared_memory + from, sizeof sums);
}

// An element of an operand as a descriptor names it: row (or column) i of 64, and k of those of one instruction.
inline sum_t element_of(unsigned long long descriptor, int i, int k, bool is_k_major) {
  const unsigned start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4;
  const unsigned stride = (descriptor >> 32 & 0x3FFF) << 4;
  constexpr int kWide = 128 / ELEMENT_BYTES;
  unsigned at = is_k_major ? start + i / 8 * stride + i % 8 * 128 + k * ELEMENT_BYTES
                           : start + i / kWide * leading + k / 8 * stride + k % 8 * 128 + i % kWide * ELEMENT_BYTES;
  at ^= (at >> 7 & 7) << 4;
#if DTYPE == 4
  return static_cast<signed char>(shared_memory[at]);
#else
  unsigned word = 0;
  std::memcpy(&word, shared_memory + at, ELEMENT_BYTES);
  return __uint_as_float(DTYPE == 1 ? word << 16 : word);
#endif
}

struct Issued {
  sum_t* sums;
  int number;
  unsigned long long rows, columns;
  int adds, group;
};
static std::map<int, std::vector<Issued>> issued;
inline void wgmma_fence() {}
inline void wgmma_commit() { ++fibers::self().groups; }
template <int kNumber>
inline void wgmma(sum_t (&sums)[kNumber], unsigned long long rows, unsigned long long columns, int adds) {
  issued[fibers::current].push_back({sums, kNumber, rows, columns, adds, fibers::self().groups});
}
template <int kGroups>
inline void wgmma_wait() {
  auto& mine = issued[fibers::current];
  const int thread = fibers::self().thread, lane = thread % 32, warp = thread / 32 % 4;
  size_t done = 0;
  for (; done < mine.size() && mine[done].group < fibers::self().groups - kGroups; ++done) {
    const Issued& one = mine[done];
    for (int j = 0; j < one.number; ++j) {
      const int row = 16 * warp + lane / 4 + j % 4 / 2 * 8, column = j / 4 * 8 + lane % 4 * 2 + j % 2;
      sum_t sum = one.adds ? one.sums[j] : 0;
      for (int k = 0; k < 32 / ELEMENT_BYTES; ++k)
        sum += element_of(one.rows, row, k, ROWS_K_MAJOR) * element_of(one.columns, column, k, COLUMNS_K_MAJOR);
      one.sums[j] = sum;
    }
  }
  mine.erase(mine.begin(), mine.begin() + done);
}
