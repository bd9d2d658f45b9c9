// Enough of CUDA to run a grid whose blocks wait for each other on the CPU: every thread of every block is a fiber, and
// fibers run in an order that a seed decides. Stores for other blocks stay with their thread for a while, unless a fence
// comes: only those to the same address keep their order. Built with g++.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

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
static Place threadIdx, blockIdx;
static unsigned char* shared_memory;  // of the block whose thread runs

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
// A fiber begins by `ucontext`; from then on it is left and gone on with by jumps, which ask nothing of the kernel.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool begun = false, finished = false;
  const Barrier* waits_at = nullptr;
  int turn = 0;
  int block, thread, groups = 0;
  std::vector<std::pair<unsigned*, unsigned>> stores;
  std::vector<Pending> pending;
};
static jmp_buf scheduler_place;
static std::vector<Fiber> all;
static std::vector<Block> blocks;
static std::unique_ptr<char[]> stacks;
static unsigned long long state;
static int current, threads;
static long long switches, most_switches;
static bool stuck;
static int mistake;  // the number of the one that is made, or 0

inline Fiber& self() { return all[current]; }
inline Block& own() { return blocks[self().block]; }
// Random bits (splitmix64).
inline unsigned random() {
  unsigned long long z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull, z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return static_cast<unsigned>((z ^ z >> 31) >> 32);
}
inline void give_way() {
  if (!_setjmp(self().place)) _longjmp(scheduler_place, 1);
}
inline void go_on(Fiber& f) {
  if (_setjmp(scheduler_place)) return;
  if (f.begun) _longjmp(f.place, 1);
  f.begun = true;
  setcontext(&f.context);
}
// A fiber that waits is not gone on with before all have come.
inline void wait(Barrier& barrier, int members) {
  const int turn = barrier.turn;
  if (++barrier.came == members) {
    barrier.came = 0, ++barrier.turn;
    return;
  }
  self().waits_at = &barrier, self().turn = turn;
  give_way();
  self().waits_at = nullptr;
}
inline void wait_for_warp() { wait(own().warps[self().thread / 32], 32); }
inline void wait_for_group() { wait(own().groups[self().thread / 128], 128); }

// Lets one store that waits reach memory, the oldest one to its address.
inline void drain_one(Fiber& f) {
  const size_t picked = random() % f.stores.size();
  for (size_t i = 0; i <= picked; ++i) {
    if (f.stores[i].first != f.stores[picked].first) continue;
    *f.stores[i].first = f.stores[i].second;
    f.stores.erase(f.stores.begin() + i);
    return;
  }
}
inline void drain(Fiber& f) {
  while (!f.stores.empty()) drain_one(f);
}

// Runs a grid. Gives 0, or 1 where threads went on waiting for each other.
template <typename Body>
int run(const Body& body, int number, int count, unsigned seed, long long most) {
  static const Body* work;
  work = &body, threads = count, state = seed, switches = 0, most_switches = most, stuck = false;
  blocks.assign(number, Block());
  for (Block& block : blocks) {
    block.memory.assign(kSharedBytes + 1024, 0x7B);
    const auto at = reinterpret_cast<uintptr_t>(block.memory.data());
    block.base = block.memory.data() + (1024 - at % 1024) % 1024;
    block.warps.resize(count / 32), block.groups.resize((count + 127) / 128), block.votes.resize(count / 32), block.words.resize(count);
  }
  all.assign(number * count, Fiber());
  stacks.reset(new char[kStack * all.size()]);
  for (size_t i = 0; i < all.size(); ++i) {
    Fiber& f = all[i];
    f.block = i / count, f.thread = i % count;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks.get() + kStack * i;
    f.context.uc_stack.ss_size = kStack;
    makecontext(&f.context, reinterpret_cast<void (*)()>(+[]() {
                  (*work)();
                  self().finished = true;
                  give_way();
                }), 0);
  }
  // Warps take turns in a random order; some wait for a while.
  std::vector<int> order(all.size() / 32);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (bool left = true; left && switches < most_switches;) {
    left = false;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (int warp : order) {
      const bool sleeps = random() % 4 == 0;
      for (int lane = 0; lane < 32; ++lane) {
        Fiber& f = all[warp * 32 + lane];
        for (int i = 0; i < 2 && !f.stores.empty() && random() % 3 == 0; ++i) drain_one(f);
        left |= !f.finished || !f.stores.empty();
        if (f.finished || sleeps) continue;
        current = warp * 32 + lane, ++switches;
        if (f.waits_at && f.waits_at->turn == f.turn) continue;
        threadIdx = {f.thread, 0, 0}, blockIdx = {f.block, 0, 0}, shared_memory = blocks[f.block].base;
        go_on(f);
      }
    }
    stuck = left;
  }
  return stuck;
}
}  // namespace fibers

inline void __syncthreads() { fibers::wait(fibers::own().whole, fibers::threads); }
inline unsigned __shfl_sync(unsigned, unsigned word, int from) {
  auto& words = fibers::own().words;
  const int thread = fibers::self().thread;
  words[thread] = word;
  fibers::wait_for_warp();
  const unsigned got = words[thread / 32 * 32 + from];
  fibers::wait_for_warp();
  return got;
}
inline bool __any_sync(unsigned, bool says) {
  int& vote = fibers::own().votes[fibers::self().thread / 32];
  fibers::wait_for_warp();
  if (says) vote = 1;
  fibers::wait_for_warp();
  const bool any = vote;
  fibers::wait_for_warp();
  vote = 0;
  return any;
}
