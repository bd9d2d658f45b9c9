// What the product gives a thread for its own rows, where two warpgroups share the depth: each keeps one of a thread's two
// rows and hands the sums of the other one over. Only the two warps of the same rows meet.
#pragma once
#include "product.cuh"

// Two sums of a row for every eight columns, in the thread that computes the row.
using RowSums = float[kOwnRows][kColumns / 8][2];

__device__ __forceinline__ float2* handed(int copy, int depth_group, int eight) {
  const int thread = static_cast<int>(threadIdx.x) % (kThreads / kDepthGroups);
  float2* all = reinterpret_cast<float2*>(shared_memory + kHandedAt) + copy * (kHandedFloats / 2);
  return all + (depth_group * (kColumns / 8) + eight) * (kThreads / kDepthGroups) + thread;
}

// Two copies are taken in turns: a warp that writes one again has met the other warp since that read it.
__device__ __forceinline__ void share_sums(
    const float (&sums)[kSums], RowSums& own, int copy, int depth_group, int tile) {
  if constexpr (kDepthGroups == 1) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) own[i % 4 / 2][i / 4][i % 2] = sums[i];
  } else {
    const bool second = depth_group == 1;
#pragma unroll
    for (int eight = 0; eight < kColumns / 8; ++eight) {
      const float* four = sums + 4 * eight;
      *handed(copy, depth_group, eight) = second ? make_float2(four[0], four[1]) : make_float2(four[2], four[3]);
    }
    named_sync(1 + tile, 64);
#pragma unroll
    for (int eight = 0; eight < kColumns / 8; ++eight) {
      const float* four = sums + 4 * eight;
      const float2 other = *handed(copy, 1 - depth_group, eight);
      own[0][eight][0] = (second ? four[2] : four[0]) + other.x;
      own[0][eight][1] = (second ? four[3] : four[1]) + other.y;
    }
  }
}
