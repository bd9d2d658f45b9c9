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
template <typename T>
inline T load_once(const T* from) {
  return *from;
}
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
// Memory of the operands, {begin, end} of each; copies that leave it are counted.
static std::vector<std::pair<long long, long long>> operands;
static long long copies_outside = 0;
inline void copy(void* to, const void* from, int bytes) {
  const long long begin = reinterpret_cast<long long>(from);
  bool is_inside = false;
  for (const auto& [first, last] : operands) is_inside |= first <= begin && begin + bytes <= last;
  copies_outside += !is_inside;
  own_groups().back().push_back({to, from, bytes});
}
extern "C" void set_operands(const long long* ends, int number) {
  operands.clear(), copies_outside = 0;
  for (int i = 0; i < number; ++i) operands.push_back({ends[2 * i], ends[2 * i + 1]});
}
extern "C" long long num_copies_outside() { return copies_outside; }
inline void copy_word(int* to, const int* from) { copy(to, from, 4); }
inline void copy_vector(void* to, const void* from) { copy(to, from, 16); }
inline void commit_copies() { own_groups().emplace_back(); }
inline void wait_for(size_t kept) {
  auto& all = own_groups();
  while (all.size() > kept + 1) {
    for (const Copy& copy : all.front()) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
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
