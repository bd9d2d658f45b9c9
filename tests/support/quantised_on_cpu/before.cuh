// What constrint/kernels/gemm/quantised/source/kernel.cu has of PTX, for the CPU.
#pragma once
#include "instructions.cuh"

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned __cvta_generic_to_shared(const void* at) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(at) - memory);
}
// Copies 16 bytes, or zeros where there are none to read.
inline void copy_16(unsigned to, const void* from, unsigned bytes = 16) {
  if (bytes && is_stray(from, bytes)) return;
  std::memset(memory + to, 0, 16);
  std::memcpy(memory + to, from, bytes);
}
inline float half_of(unsigned word, int which) {
  const unsigned short bits = word >> 16 * which;
  return number(&bits);
}
// first * second + third of both halves, rounded once: exact where no bit is lost.
inline unsigned fused(unsigned first, unsigned second, unsigned third) {
  float made[2];
  for (int i = 0; i < 2; ++i) made[i] = half_of(first, i) * half_of(second, i) + half_of(third, i);
  return narrowed(made[0], made[1]);
}
