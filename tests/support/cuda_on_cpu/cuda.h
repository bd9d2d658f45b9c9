// Enough of CUDA to run a kernel on the CPU: threads of a block are fibers that give way at barriers, blocks run one after
// the other in a given order. Built with g++; slow, and free of the hardware's freedom to reorder.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)

struct Place {
  int x, y, z;
};
struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static Place threadIdx, blockIdx, gridDim;
alignas(16) static unsigned char memory[232448];
using std::max;
using std::min;

namespace fibers {
struct Barrier {
  int came = 0, turn = 0;
};
static ucontext_t scheduler;
static std::vector<ucontext_t> contexts;
static std::vector<char> finished;
static int current, threads;
static Barrier block_barrier;
static std::vector<Barrier> warp_barriers;
static unsigned words[64][32][6];
static float floats[64][32];
static int integers[64][32];

inline void wait(Barrier& barrier, int members) {
  const int turn = barrier.turn, self = current;
  if (++barrier.came == members) {
    barrier.came = 0, ++barrier.turn;
    return;
  }
  while (barrier.turn == turn) swapcontext(&contexts[self], &scheduler);
}
inline void wait_for_warp() { wait(warp_barriers[current / 32], 32); }

template <typename Body>
void run_block(const Body& body, int count) {
  static const Body* work;
  work = &body;
  threads = count;
  contexts.assign(count, ucontext_t());
  finished.assign(count, 0);
  block_barrier = Barrier();
  warp_barriers.assign(count / 32, Barrier());
  constexpr size_t kStack = 128 << 10;
  static std::vector<char> stacks;
  stacks.resize(kStack * count);
  for (int i = 0; i < count; ++i) {
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks.data() + kStack * i;
    contexts[i].uc_stack.ss_size = kStack;
    contexts[i].uc_link = &scheduler;
    makecontext(&contexts[i], reinterpret_cast<void (*)()>(+[]() {
                  (*work)();
                  finished[current] = 1;
                }), 0);
  }
  for (int left = count; left > 0;) {
    left = 0;
    for (int turn = 0; turn < count; ++turn) {
      // Every other block begins with its last thread, so that a missing barrier shows either way.
      const int i = (blockIdx.x + blockIdx.y) % 2 ? count - 1 - turn : turn;
      if (finished[i]) continue;
      current = i, threadIdx.x = i;
      swapcontext(&scheduler, &contexts[i]);
      left += !finished[i];
    }
  }
}
}  // namespace fibers

inline void __syncthreads() { fibers::wait(fibers::block_barrier, fibers::threads); }
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (bits & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned order) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  unsigned made = 0;
  for (int i = 0; i < 4; ++i) made |= static_cast<unsigned>(both >> (8 * (order >> (4 * i) & 7)) & 0xFF) << (8 * i);
  return made;
}
inline float __uint_as_float(unsigned bits) {
  float made;
  std::memcpy(&made, &bits, 4);
  return made;
}
inline float __shfl_xor_sync(unsigned, float value, int lanes) {
  const int warp = fibers::current / 32, lane = fibers::current % 32;
  fibers::floats[warp][lane] = value;
  fibers::wait_for_warp();
  const float got = fibers::floats[warp][lane ^ lanes];
  fibers::wait_for_warp();
  return got;
}
inline int __shfl_xor_sync(unsigned, int value, int lanes) {
  const int warp = fibers::current / 32, lane = fibers::current % 32;
  fibers::integers[warp][lane] = value;
  fibers::wait_for_warp();
  const int got = fibers::integers[warp][lane ^ lanes];
  fibers::wait_for_warp();
  return got;
}

// The bytes of both operands and of what is added. Loads that touch none of them, that reach beyond their end, or that lie
// at no multiple of their size, are counted and not made. A vector at a multiple of 16 bytes may begin before an operand:
// allocators begin at multiples of 256, so that what is there is allocated, too.
static const unsigned char* spans[4][2];
static int strays;
inline bool is_stray(const void* from, int bytes) {
  const auto* at = static_cast<const unsigned char*>(from);
  bool touches = false;
  for (const auto& span : spans) touches |= at + bytes > span[0] && at + bytes <= span[1];
  const bool is_one = !touches || reinterpret_cast<uintptr_t>(from) % bytes;
  strays += is_one;
  return is_one;
}
template <typename T> T __ldg(const T* from) {
  T made = {};
  if (!is_stray(from, sizeof(T))) std::memcpy(&made, from, sizeof(T));
  return made;
}
