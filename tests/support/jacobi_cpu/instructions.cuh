// What `constrint/kernels/jacobi/source/instructions.cuh` states, for the CPU: copies arrive when they are waited for.
#pragma once
#if KIND == 1
typedef double real;
typedef double element;
#else
typedef float real;
typedef float element;
#endif

inline real widen(element value) { return value; }
inline element narrow(real value) { return value; }
using std::max;
using std::min;

template <typename T>
T shuffled(T value, int step, int width) {
  unsigned words[2] = {0, 0};
  std::memcpy(words, &value, sizeof value);
  const int lane = threadIdx.x % 32, other = lane + step;
  const int from = other >= 0 && other / width == lane / width ? other : lane;
  for (unsigned& word : words) word = __shfl_sync(~0u, word, from);
  std::memcpy(&value, words, sizeof value);
  return value;
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int step, int width) {
  return shuffled(value, -step, width);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int step, int width) {
  return shuffled(value, step, width);
}

inline void __syncwarp() { fibers::wait_for_warp(); }

struct Copy {
  unsigned char* to;
  unsigned char bytes[16];
  int size, group;
};
struct Copies {
  std::vector<Copy> under_way;
  int group = 0;
};
inline std::vector<Copies>& copies() {
  static std::vector<Copies> of_fibers;
  of_fibers.resize(std::max(of_fibers.size(), fibers::all.size()));
  return of_fibers;
}
template <int BYTES>
void copy_async(void* to, const void* from, bool is_there) {
  Copies& own = copies()[fibers::current];
  Copy copy{static_cast<unsigned char*>(to), {}, BYTES, own.group};
  if (is_there) std::memcpy(copy.bytes, from, BYTES);
  own.under_way.push_back(copy);
  std::memset(to, 0x7F, BYTES);  // nothing that may be read before
}
inline void commit_copies() { ++copies()[fibers::current].group; }
template <int LEFT>
void wait_for_copies() {
  Copies& own = copies()[fibers::current];
  std::vector<Copy> rest;
  for (const Copy& copy : own.under_way) {
    if (copy.group < own.group - LEFT) {
      std::memcpy(copy.to, copy.bytes, copy.size);
    } else {
      rest.push_back(copy);
    }
  }
  own.under_way.swap(rest);
}
