// What `kernels/spmv/source/instructions.cuh` does, for the CPU.
#pragma once

struct int4 {
  int x, y, z, w;
};
typedef TYPE Value;
#if VALUE == 0
typedef double Sum;
#else
typedef float Sum;
#endif
#if PANELS
typedef unsigned short Column;
#else
typedef int Column;
#endif

inline Sum widened(Value value) { return value; }
inline Value rounded(Sum sum) { return sum; }
template <typename T>
inline T load_once(const T* from) {
  return *from;
}
inline void meet(int team) {
  if (TEAMS > 1) fibers::wait(fibers::own().named[team + 1], THREADS);
  else __syncthreads();
}
// A copy reaches shared memory when the thread waits for it.
static std::map<int, std::vector<std::pair<int*, const int*>>> copies;
inline void copy_word(int* to, const int* from) { copies[fibers::current].push_back({to, from}); }
inline void wait_for_copies() {
  for (auto& [to, from] : copies[fibers::current]) *to = *from;
  copies.erase(fibers::current);
}
inline int atomicAdd(int* to, int number) { return (*to += number) - number; }
inline int min(int a, int b) { return a < b ? a : b; }
inline Sum of_other_lane(Sum sum, int step) {
  unsigned words[2] = {0, 0};
  std::memcpy(words, &sum, sizeof sum);
  const int from = fibers::self().thread % 32 ^ step;
  words[0] = __shfl_sync(0xffffffffu, words[0], from);
  if (sizeof sum == 8) words[1] = __shfl_sync(0xffffffffu, words[1], from);
  std::memcpy(&sum, words, sizeof sum);
  return sum;
}
