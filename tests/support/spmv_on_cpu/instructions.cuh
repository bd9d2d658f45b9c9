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

inline Sum widened(Value value) { return value; }
inline Value rounded(Sum sum) { return sum; }
// First bytes and ends of the arrays of entries, and how many loads and copies of vectors have reached beyond an end.
static const char* spans[2][2];
static int strays;
inline void count_stray(const void* from, int bytes) {
  const char* at = static_cast<const char*>(from);
  for (const auto& span : spans) strays += span[0] <= at && at < span[1] && at + bytes > span[1];
}
template <typename T>
inline T load_once(const T* from) {
  count_stray(from, sizeof(T));
  return *from;
}
inline void bring_to_l2(const void*) {}
inline void meet() { __syncthreads(); }
// Copies reach shared memory when the thread waits for their group.
struct Copy {
  void* to;
  const void* from;
  int bytes;
};
static std::map<int, std::vector<std::vector<Copy>>> groups;
inline std::vector<std::vector<Copy>>& own_groups() {
  auto& all = groups[fibers::current];
  if (all.empty()) all.emplace_back();
  return all;
}
inline void copy_word(int* to, const int* from) {
  count_stray(from, 4);
  own_groups().back().push_back({to, from, 4});
}
inline void copy_vector(void* to, const void* from) {
  count_stray(from, 16);
  own_groups().back().push_back({to, from, 16});
}
inline void commit_copies() { own_groups().emplace_back(); }
inline void wait_for(size_t kept) {
  auto& all = own_groups();
  while (all.size() > kept + 1) {
    for (const Copy& copy : all.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    all.erase(all.begin());
  }
}
template <int NUMBER>
inline void wait_for_all_but() {
  wait_for(NUMBER);
}
inline void wait_for_copies() {
  commit_copies();
  wait_for(0);
}
inline int atomicAdd(int* to, int number) { return (*to += number) - number; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline Sum of_other_lane(Sum sum, int step) {
  unsigned words[2] = {0, 0};
  std::memcpy(words, &sum, sizeof sum);
  const int from = fibers::self().thread % 32 ^ step;
  words[0] = __shfl_sync(0xffffffffu, words[0], from);
  if (sizeof sum == 8) words[1] = __shfl_sync(0xffffffffu, words[1], from);
  std::memcpy(&sum, words, sizeof sum);
  return sum;
}
inline int of_lane(int word, int from) { return (int)__shfl_sync(0xffffffffu, (unsigned)word, from); }
inline Sum of_lane_before(Sum sum, int step, int lane) {
  unsigned words[2] = {0, 0};
  std::memcpy(words, &sum, sizeof sum);
  const int from = lane >= step ? lane - step : lane;
  words[0] = __shfl_sync(0xffffffffu, words[0], from);
  if (sizeof sum == 8) words[1] = __shfl_sync(0xffffffffu, words[1], from);
  std::memcpy(&sum, words, sizeof sum);
  return sum;
}
inline void wait_for_lanes() { fibers::wait_for_warp(); }
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int scan_counts(int count, int lane) {
  int sum = count;
  for (int step = 1; step < 32; step *= 2) {
    const int other = of_lane(sum, lane >= step ? lane - step : lane);
    if (lane >= step) sum += other;
  }
  return sum - count;
}
