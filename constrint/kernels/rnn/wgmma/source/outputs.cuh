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

// Three words of each of four lanes as vectors of four words of three lanes: 12 bytes a lane are no vector, and single words
// would write each sector several times. All lanes of the warp take part. What a lane gives are words 3 q to 3 q + 2 of the
// row, what it gets are words 4 q to 4 q + 3; in a turn each lane gives one word at most.
__device__ __forceinline__ uint4 four_of_three(const unsigned* words) {
  const int lane = static_cast<int>(threadIdx.x) % 32, q = lane % 4;
  unsigned four[4];
#pragma unroll
  for (int turn = 0; turn < 4; ++turn) {
    const int given = (turn + q) % 4, from = q < 3 ? (4 * q + turn) / 3 : 3;
    const unsigned word = given == 0 ? words[0] : given == 1 ? words[1] : words[2];
    four[turn] = __shfl_sync(0xFFFFFFFFu, word, lane - q + from);
  }
  return make_uint4(four[0], four[1], four[2], four[3]);
}

// Stores a thread's words of a row, if that is one; all lanes of a warp call it together.
__device__ __forceinline__ void store_words(element* to, const unsigned (&words)[kPairs], bool exists) {
  if constexpr (kPairs == 3) {
    const uint4 v = four_of_three(words);
    const int q = static_cast<int>(threadIdx.x) % 4;
    // The row's first unit is 6 q before this thread's own; a vector has eight.
    if (exists && q < 3) store_vector(to + 2 * q, v);
    return;
  }
  if (!exists) return;
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
