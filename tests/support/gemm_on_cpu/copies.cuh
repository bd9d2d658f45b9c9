// What `gemm/cuda/unaligned/source/copies.cuh` does, for the CPU: copies reach shared memory when they are waited for.
#pragma once
#include <cstring>

struct __align__(16) Words {
  unsigned word[4];
};

template <bool kIsMore, int kNumber>
inline void set_registers() {}

struct Copy {
  unsigned to;
  const unsigned char* from;
  int size, group;
};
static std::map<int, std::vector<Copy>> copies;
static std::map<int, int> copy_groups;
// What may be read: memory of the operands, whose units of 16 bytes may begin before it.
static std::vector<std::pair<const unsigned char*, const unsigned char*>> readable;
static int strays;

inline void copy_unit(unsigned to, const unsigned char* from, int size = 16) {
  bool is_inside = size == 0;
  for (const auto& [first, last] : readable) is_inside |= from + 16 > first && from + size <= last;
  strays += !is_inside || reinterpret_cast<uintptr_t>(from) % 16 || to % 16;
  copies[fibers::current].push_back({to, from, size, copy_groups[fibers::current]});
}
inline void end_copies() { ++copy_groups[fibers::current]; }
template <int kGroups>
inline void wait_copied() {
  auto& mine = copies[fibers::current];
  size_t done = 0;
  for (; done < mine.size() && mine[done].group < copy_groups[fibers::current] - kGroups; ++done) {
    std::memset(shared_memory + mine[done].to, 0, 16);
    std::memcpy(shared_memory + mine[done].to, mine[done].from, mine[done].size);
  }
  mine.erase(mine.begin(), mine.begin() + done);
}

inline Words load_words(unsigned from) {
  Words v;
  std::memcpy(&v, shared_memory + from, 16);
  return v;
}
inline void store_words(unsigned to, const Words& v) {
  unfenced[fibers::current].push_back({to, {v.word[0], v.word[1], v.word[2], v.word[3]}});
}
inline unsigned short load_half(unsigned from) {
  unsigned short half;
  std::memcpy(&half, shared_memory + from, 2);
  return half;
}
inline unsigned upper_of(unsigned low, unsigned high, unsigned bit) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> bit);
}
inline Words rounded(const Words& v) {
#if DTYPE == 2
  Words out = v;
  for (unsigned& word : out.word) word = (word + 0xFFF + (word >> 13 & 1)) & ~0x1FFFu;
  return out;
#else
  return v;
#endif
}
