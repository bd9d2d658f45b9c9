// What constrint/kernels/gemm/quantised/source/ring.cuh does, for the CPU: barriers are those of a block's fibers, copies end
// at once, and a cluster has one block.
#pragma once

inline unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }

struct RingBarrier {
  short phase, count, left;  // which phase it is in, arrivals of a phase, and those that it still waits for
  unsigned short none;
};
static long long pending_bytes[64];

inline RingBarrier& ring_barrier(unsigned at) { return *reinterpret_cast<RingBarrier*>(memory + at); }
inline void barrier_init(unsigned at, int count) {
  ring_barrier(at) = {0, static_cast<short>(count), static_cast<short>(count), 0};
  pending_bytes[at / 8] = 0;
}
inline void fence_barrier_init() {}
inline void complete(unsigned at) {
  RingBarrier& barrier = ring_barrier(at);
  if (barrier.left == 0 && pending_bytes[at / 8] == 0) barrier.left = barrier.count, ++barrier.phase;
}
inline void arrive(unsigned at) { --ring_barrier(at).left, complete(at); }
inline void expect(unsigned at, unsigned bytes) { pending_bytes[at / 8] += bytes, arrive(at); }
inline void wait(unsigned at, unsigned parity) {
  while ((ring_barrier(at).phase & 1) == static_cast<int>(parity))
    swapcontext(&fibers::contexts[fibers::current], &fibers::scheduler);
}
inline unsigned long long read_once_policy() { return 0; }
inline bool is_stray_copy(const void* from, unsigned bytes) {
  const auto* at = static_cast<const unsigned char*>(from);
  bool lies = false;
  for (const auto& span : spans) lies |= at >= span[0] && at + bytes <= span[1];
  const bool is_one = !lies || bytes % 16 || reinterpret_cast<uintptr_t>(from) % 16;
  strays += is_one;
  return is_one;
}
inline bool is_elected() { return fibers::current % 32 == 0; }
inline void copy_once(unsigned to, const void* from, unsigned bytes, unsigned barrier, unsigned long long) {
  strays += to % 16 != 0;
  if (!is_stray_copy(from, bytes)) std::memcpy(memory + to, from, bytes);
  pending_bytes[barrier / 8] -= bytes, complete(barrier);
}
inline void copy_vector(unsigned to, const void* from, unsigned bytes) {
  strays += to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0;
  std::memset(memory + to, 0, 16);
  // A read of fewer bytes is of no operand where its last byte is of none.
  bool lies = bytes == 0;
  for (const auto& span : spans)
    lies |= static_cast<const unsigned char*>(from) >= span[0] && static_cast<const unsigned char*>(from) + bytes <= span[1];
  if (lies) std::memcpy(memory + to, from, bytes);
  strays += !lies;
}
inline void arrive_with_vectors(unsigned barrier) { arrive(barrier); }
static fibers::Barrier consumers_barrier;
template <int kThreads>
inline void meet() { fibers::wait(consumers_barrier, kThreads); }
static fibers::Barrier made_barrier;
template <int kThreads>
inline void announce() {
  if (++made_barrier.came == kThreads) made_barrier.came = 0, ++made_barrier.turn;
}
template <int kThreads>
inline void wait_for_barriers() { fibers::wait(made_barrier, kThreads); }
inline void meet_warp() { fibers::wait_for_warp(); }
