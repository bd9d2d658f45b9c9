// What constrint/kernels/gemm/skinny/source/instructions.cuh does, for the CPU: matrix instructions by their definition.
#pragma once
#include "cuda.h"

#include "types.cuh"

struct alignas(16) Vector {
  unsigned word[4];
};

inline Vector load_kept(const unsigned char* from) {
  Vector v = {};
  if (!is_stray(from, 16)) std::memcpy(&v, from, 16);
  return v;
}
inline Vector load_once(const unsigned char* from) { return load_kept(from); }

inline sum_t number(const void* from) {
#if DTYPE == 2
  float made;
  std::memcpy(&made, from, 4);
  return made;
#elif DTYPE == 1
  unsigned short bits;
  std::memcpy(&bits, from, 2);
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
#elif DTYPE == 4
  return *static_cast<const signed char*>(from);
#else
  unsigned bits = *static_cast<const unsigned char*>(from);
  int fraction = 3, bias = 7;
#if DTYPE == 0
  bits |= static_cast<const unsigned char*>(from)[1] << 8, fraction = 10, bias = 15;
#endif
  const int sign_at = kElement * 8 - 1;
  const int exponent = bits >> fraction & ((1 << (sign_at - fraction)) - 1), rest = bits & ((1 << fraction) - 1);
  if (exponent == (1 << (sign_at - fraction)) - 1 && (DTYPE == 0 || rest == 7)) return NAN;
  const float size = exponent ? std::ldexp(1.0f + std::ldexp(float(rest), -fraction), exponent - bias)
                              : std::ldexp(float(rest), 1 - bias - fraction);
  return bits >> sign_at & 1 ? -size : size;
#endif
}

inline void unpack(const Vector& v, sum_t (&numbers)[16 / kElement]) {
  for (int i = 0; i < 16 / kElement; ++i) numbers[i] = number(reinterpret_cast<const char*>(&v) + i * kElement);
}

inline void multiply_matrices(
    sum_t (&sums)[4], unsigned w0, unsigned w1, unsigned w2, unsigned w3, unsigned x0, unsigned x1) {
  const int warp = fibers::current / 32, lane = fibers::current % 32;
  auto& words = fibers::words[warp];
  const unsigned own[6] = {w0, w1, w2, w3, x0, x1};
  std::memcpy(words[lane], own, sizeof own);
  fibers::wait_for_warp();
  for (int c = 0; c < 4; ++c) {
    const int row = lane / 4 + c / 2 * 8, column = lane % 4 * 2 + c % 2;
    for (int word = 0; word < 8; ++word) {
      // Words along K: of A, registers 0 and 1 have the first four; of B, register 0.
      const unsigned a = words[row % 8 * 4 + word % 4][word / 4 * 2 + row / 8], b = words[column * 4 + word % 4][4 + word / 4];
      for (int e = 0; e < 4 / kElement; ++e)
        sums[c] += number(reinterpret_cast<const char*>(&a) + e * kElement) *
                   number(reinterpret_cast<const char*>(&b) + e * kElement);
    }
  }
  fibers::wait_for_warp();
}

inline void store_part(sum_t* to, const sum_t (&part)[4]) { std::memcpy(to, part, 16); }
inline void load_part(const sum_t* from, sum_t (&part)[4]) { std::memcpy(part, from, 16); }

// Rounded to the nearest, to even where two are as near.
inline unsigned narrowed(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
#if OUT == 1
  return value != value ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
#else
  const unsigned sign = bits >> 16 & 0x8000;
  const int exponent = std::max(value == 0 ? -14 : std::ilogb(value), -14);
  // In units of the last place; what is rounded up to the next power of two carries into the exponent.
  const int units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), 10 - exponent)));
  return sign | (((exponent + 14) << 10) + units);
#endif
}
inline unsigned narrowed(float low, float high) { return narrowed(low) | narrowed(high) << 16; }

inline float widened(unsigned short bits) {
  const int exponent = bits >> 10 & 31, rest = bits & 1023;
  const float size = exponent ? std::ldexp(1.0f + std::ldexp(float(rest), -10), exponent - 15)
                              : std::ldexp(float(rest), -24);
  return bits & 0x8000 ? -size : size;
}
