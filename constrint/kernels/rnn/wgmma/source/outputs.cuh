// What a thread reads and writes of global memory beside the exchange: neighbours of units in its rows, as words of two.
#pragma once
#include "layout.cuh"

// Words that are read or written at once: a thread's units begin at a multiple of them.
constexpr int kVector = kPairs % 4 == 0 ? 4 : kPairs % 2 == 0 ? 2 : 1;

__device__ __forceinline__ void load_words(const element* __restrict__ from, unsigned (&words)[kPairs]) {
#pragma unroll
  for (int i = 0; i < kPairs; i += kVector) {
    const element* at = from + 2 * i;
    if constexpr (kVector == 4) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(at));
      words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
    } else if constexpr (kVector == 2) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(at));
      words[i] = v.x, words[i + 1] = v.y;
    } else {
      words[i] = __ldg(reinterpret_cast<const unsigned*>(at));
    }
  }
}

__device__ __forceinline__ void store_words(element* to, const unsigned (&words)[kPairs]) {
#pragma unroll
  for (int i = 0; i < kPairs; i += kVector) {
    element* at = to + 2 * i;
    if constexpr (kVector == 4) {
      *reinterpret_cast<uint4*>(at) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    } else if constexpr (kVector == 2) {
      *reinterpret_cast<uint2*>(at) = make_uint2(words[i], words[i + 1]);
    } else {
      *reinterpret_cast<unsigned*>(at) = words[i];
    }
  }
}

// The first or the second one of two elements in a word.
__device__ __forceinline__ float part_of(unsigned word, int part) {
  return widen(static_cast<element>(word >> 16 * part));
}
