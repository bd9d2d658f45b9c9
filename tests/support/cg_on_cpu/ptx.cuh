// The functions of `kernels/cg/source/ptx.cuh` on the CPU: blocks wait for each other's words as on a GPU.
#pragma once
#include <cmath>

#define __align__(bytes)
using std::fma;

inline void fence_of_grid() {}
inline void publish(unsigned long long* to, unsigned long long word) {
  fibers::give_way();
  *to = word;
}
inline unsigned long long look(const unsigned long long* from) {
  fibers::give_way();
  return *from;
}
inline unsigned high_word(double x) {
  unsigned long long bits;
  std::memcpy(&bits, &x, 8);
  return static_cast<unsigned>(bits >> 32);
}
inline unsigned low_word(double x) {
  unsigned long long bits;
  std::memcpy(&bits, &x, 8);
  return static_cast<unsigned>(bits);
}
inline double of_words(unsigned high, unsigned low) {
  const unsigned long long bits = static_cast<unsigned long long>(high) << 32 | low;
  double made;
  std::memcpy(&made, &bits, 8);
  return made;
}
template <class T>
inline T of_next_lanes(T x, int distance) {
  const int from = (threadIdx.x % 32) ^ distance;
  const double wide = x;
  const unsigned high = __shfl_sync(~0u, high_word(wide), from), low = __shfl_sync(~0u, low_word(wide), from);
  return static_cast<T>(of_words(high, low));
}
template <class T>
inline T of_lane(T x, int lane) {
  unsigned long long bits = 0, got;
  std::memcpy(&bits, &x, sizeof x);
  const unsigned high = __shfl_sync(~0u, static_cast<unsigned>(bits >> 32), lane);
  got = static_cast<unsigned long long>(high) << 32 | __shfl_sync(~0u, static_cast<unsigned>(bits), lane);
  std::memcpy(&x, &got, sizeof x);
  return x;
}
inline void sync_warp() { fibers::wait_for_warp(); }
inline unsigned char* shared_memory_of_block() { return shared_memory; }
inline void hide(int&) {}
