// What `rnn/cuda/source/ptx.cuh` does, for the CPU: as much of it as the kernels for many sequences use, in bf16 and fp16.
#pragma once
#include "grid.h"

#include "shape.cuh"

#define WATCHED_LOOP while (true)

inline float widen(element bits) {
#if DTYPE == 1
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
#else
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? std::ldexp(1024.0f + fraction, exponent - 25)
                                    : std::ldexp(float(fraction), -24);
  return bits >> 15 ? -size : size;
#endif
}

inline element narrow(float x) {
  if (x != x) return 0x7FFF;
  const unsigned word = __float_as_uint(x);
#if DTYPE == 1
  return static_cast<element>((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
#else
  const element sign = word >> 16 & 0x8000u;
  const float size = std::fabs(x);
  if (size >= 65520.0f) return sign | 0x7C00;
  if (size == 0.0f) return sign;
  int exponent;
  std::frexp(size, &exponent);
  exponent = std::max(exponent - 1, -14);
  const float scaled = std::nearbyint(std::ldexp(size, 10 - exponent));
  return sign | static_cast<element>(((exponent + 14) << 10) + static_cast<int>(scaled));
#endif
}

inline unsigned pack(float low, float high) { return narrow(low) | static_cast<unsigned>(narrow(high)) << 16; }
inline float fast_tanh(float x) { return std::tanh(x); }
inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - shared_memory);
}

// What this thread wrote and others do not see yet, it sees.
inline unsigned word_by_grid(const unsigned* address) {
  auto& stores = fibers::self().stores;
  for (auto store = stores.rbegin(); store != stores.rend(); ++store) {
    if (store->first == address) return store->second;
  }
  return *address;
}
inline uint4 load_shared_by_grid(const void* address) {
  if (fibers::random() % 32 == 0) fibers::give_way();
  const unsigned* words = static_cast<const unsigned*>(address);
  return {word_by_grid(words), word_by_grid(words + 1), word_by_grid(words + 2), word_by_grid(words + 3)};
}
inline void store_shared_by_grid(void* address, unsigned word) {
  fibers::self().stores.emplace_back(static_cast<unsigned*>(address), word);
}
inline void store_shared_by_grid(void* address, const uint4& v) {
  unsigned* words = static_cast<unsigned*>(address);
  store_shared_by_grid(words, v.x), store_shared_by_grid(words + 1, v.y);
  store_shared_by_grid(words + 2, v.z), store_shared_by_grid(words + 3, v.w);
}
inline void fence_of_grid() { fibers::drain(fibers::self()); }
