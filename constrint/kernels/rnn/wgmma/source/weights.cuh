// The recurrent weights of a block in shared memory, as the matrix unit reads its columns: lines of 128 bytes, 64 elements
// along the depth, whose pieces of 16 bytes are exchanged by the line's number.
#pragma once
#include "layout.cuh"

extern __shared__ __align__(1024) unsigned char shared_memory[];

// Where two neighbours along the depth of a column stand.
__device__ __forceinline__ int place_of_weights(int column, int depth) {
  const int piece = depth % 64 / 8 ^ column % 8;
  return depth / 64 * kSliceBytes + column * 128 + piece * 16 + depth % 8 * 2;
}

// Reads the weights of a block's units from r (G, N, D out, D in). Units of a pair are neighbours along the depth, too.
__device__ __forceinline__ void load_weights(const element* __restrict__ r, int heads, int head, int first) {
  constexpr int kWords = kDim / 2, kAll = kColumns * kWords, kTogether = 8;
  for (int base = threadIdx.x; base < kAll; base += kTogether * kThreads) {
    unsigned words[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kWords, gate = row / kUnits, unit = row % kUnits;
      const long long line = (static_cast<long long>(gate) * heads + head) * kDim + first + unit;
      if (at < kAll) words[i] = *reinterpret_cast<const unsigned*>(r + line * kDim + at % kWords * 2);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kWords, gate = row / kUnits, unit = row % kUnits;
      const int place = place_of_weights(column_of(gate, unit), depth_of_unit(at % kWords * 2));
      if (at < kAll) *reinterpret_cast<unsigned*>(shared_memory + place) = words[i];
    }
  }
  // What no unit has along the depth of the last slice is not read.
}

// Describes what one instruction reads: the first column's elements of a step of the depth. Atoms of eight columns lie
// 1024 bytes apart, pieces are exchanged by lines of 128 bytes.
__device__ __forceinline__ unsigned long long weight_descriptor(int step) {
  const unsigned address = shared_address(shared_memory) + step / 4 * kSliceBytes + step % 4 * 32;
  const unsigned long long leading = 1, stride = 1024 >> 4;
  return static_cast<unsigned long long>((address & 0x3FFFF) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
}

// How far the descriptor of a step is from that of the first one of a warpgroup, which begins with a slice.
__device__ __forceinline__ constexpr unsigned descriptor_offset(int step) {
  return (step / 4 * kSliceBytes + step % 4 * 32) >> 4;
}
