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

#if LAYER_BACKWARD
// Reads the weights of a block's units from r (G, N, D out, D in), eight units of one row at once: a column each.
__device__ __forceinline__ void load_weights(const element* __restrict__ r, int heads, int head, int first) {
  constexpr int kAll = kDepth * kEights, kTogether = 8;
  for (int base = threadIdx.x; base < kAll; base += kTogether * kThreads) {
    uint4 vectors[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kEights, gate = row / kDim, unit = row % kDim;
      const long long line = (static_cast<long long>(gate) * heads + head) * kDim + unit;
      if (at < kAll) vectors[i] = __ldg(reinterpret_cast<const uint4*>(r + line * kDim + first + at % kEights * 8));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kEights, depth = depth_of_unit(row % kDim, row / kDim);
      const unsigned pairs[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
      for (int unit = 0; unit < 8; ++unit) {
        const int place = place_of_weights(column_of(0, at % kEights * 8 + unit), depth);
        const element weight = static_cast<element>(pairs[unit / 2] >> 16 * (unit % 2));
        if (at < kAll) *reinterpret_cast<element*>(shared_memory + place) = weight;
      }
    }
  }
}
#else
// Reads the weights of a block's units from r (G, N, D out, D in), eight neighbours at once. Pairs of units are neighbours
// along the depth, too.
__device__ __forceinline__ void load_weights(const element* __restrict__ r, int heads, int head, int first) {
  constexpr int kVectors = kDim / 8, kAll = kColumns * kVectors, kTogether = 8;
  for (int base = threadIdx.x; base < kAll; base += kTogether * kThreads) {
    uint4 vectors[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kVectors, gate = row / kUnits, unit = row % kUnits;
      const long long line = (static_cast<long long>(gate) * heads + head) * kDim + first + unit;
      if (at < kAll) vectors[i] = __ldg(reinterpret_cast<const uint4*>(r + line * kDim + at % kVectors * 8));
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = base + i * kThreads, row = at / kVectors, column = column_of(row / kUnits, row % kUnits);
      const unsigned pairs[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int place = place_of_weights(column, depth_of_unit(at % kVectors * 8 + 2 * pair, 0));
        if (at < kAll) *reinterpret_cast<unsigned*>(shared_memory + place) = pairs[pair];
      }
    }
  }
}

#endif

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
