// Enough of CUDA to run a grid whose blocks wait for each other on the CPU: every thread of every block is a fiber, and
// fibers run in an order that a seed decides. Stores for other blocks stay with their thread for a while, unless a fence
// comes: only those to the same address keep their order. Built with g++; `grid.cc` is the same for all kernels.
#pragma once
#include "standard.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

struct Place {
  int x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
extern Place threadIdx, blockIdx, gridDim;
extern unsigned char* shared_memory;  // of the block whose thread runs

inline float __uint_as_float(unsigned bits) {
  float made;
  std::memcpy(&made, &bits, 4);
  return made;
}
inline unsigned __float_as_uint(float x) {
  unsigned made;
  std::memcpy(&made, &x, 4);
  return made;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
template <typename T>
inline T __ldg(const T* from) { return *from; }

namespace fibers {
constexpr int kSharedBytes = 232448;
constexpr size_t kStack = 256 << 10;
struct Barrier {
  int came = 0, turn = 0;
};
struct Block {
  std::vector<unsigned char> memory;
  unsigned char* base;
  Barrier whole, named[16];
  std::vector<Barrier> warps, groups;
  std::vector<int> votes;
  std::vector<unsigned> words;
};
struct Pending {  // a matrix instruction that was issued
  const uint4* rows;
  float* sums;
  unsigned long long columns;
  int adds, group;
};
struct WholeStore {  // of a vector that others see whole or not at all
  unsigned* at;
  unsigned words[4];
  int number;
};
// A fiber begins by `ucontext`; from then on it is left and gone on with by jumps, which ask nothing of the kernel.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool begun = false, finished = false;
  const Barrier* waits_at = nullptr;
  int turn = 0;
  int block, thread, groups = 0;
  std::vector<std::pair<unsigned*, unsigned>> stores;
  std::vector<WholeStore> wholes;
  std::vector<Pending> pending;
};
extern std::vector<Fiber> all;
extern std::vector<Block> blocks;
extern int current, threads;
extern int mistake;  // the number of the one that is made, or 0

inline Fiber& self() { return all[current]; }
inline Block& own() { return blocks[self().block]; }
unsigned random();  // bits
void give_way();
// A fiber that waits is not gone on with before all have come.
void wait(Barrier& barrier, int members);
void wait_for_warp();
void wait_for_group();
// Lets all stores that wait reach memory.
void drain(Fiber& f);
int run_all(void (*body)(), int number, int count, unsigned seed, long long most);

// Runs a grid. Gives 0, or 1 where threads went on waiting for each other.
template <typename Body>
int run(const Body& body, int number, int count, unsigned seed, long long most) {
  static const Body* work;
  work = &body;
  return run_all(+[]() { (*work)(); }, number, count, seed, most);
}
}  // namespace fibers

void __syncthreads();
unsigned __shfl_sync(unsigned, unsigned word, int from);
bool __any_sync(unsigned, bool says);
