// Which units and sequences a thread has in the pointwise part, and what the product gives it for them.
#pragma once
#include "weights.cuh"

struct Place {
  int unit, row;  // of the block, of the tile
  bool exists;
};

__device__ __forceinline__ Place place_of(int item) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if constexpr (SUMS) {
    const int chunk = warp + WARPS * item;
    return {chunk % (U / 4) * 4 + lane % 4, chunk / (U / 4) * 8 + lane / 4, chunk < CHUNKS};
  } else if constexpr (PAIRED) {
    const int block = item / (2 * NT), n = item / 2 % NT;
    return {8 * (warp * (MT / 2) + block) + lane / 4, n * 8 + lane % 4 * 2 + item % 2, true};
  } else {
    const int block = item / (4 * NT), n = item / 4 % NT, half = item / 2 % 2;
    return {16 * (warp * (U / 16 / MW) + block) + lane / 4 + 8 * half, n * 8 + lane % 4 * 2 + item % 2, true};
  }
}

// Lanes that have a unit and its neighbour differ in this bit.
constexpr int NEIGHBOUR = SUMS ? 1 : 4;

// Hands the sums of warps that share the depth over to the threads of the pointwise part.
__device__ __forceinline__ void share_sums(const float (&sums)[MT][NT][4], float* shared) {
  if constexpr (SUMS) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mw = warp % MW, kw = warp / MW;
    float* own = shared + (kw * ROWS + mw * MT * 16 + lane / 4) * SUM_STRIDE + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile) {
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const float* c = sums[tile][n];
        *reinterpret_cast<float2*>(own + tile * 16 * SUM_STRIDE + n * 8) = make_float2(c[0], c[1]);
        *reinterpret_cast<float2*>(own + (tile * 16 + 8) * SUM_STRIDE + n * 8) = make_float2(c[2], c[3]);
      }
    }
    __syncthreads();
  } else if constexpr (PLACEMENT == 2) {
    __syncthreads();  // the next step's inputs
  }
}

// The product for one gate of one of the thread's items.
__device__ __forceinline__ float product_of(
    const float (&sums)[MT][NT][4], const float* shared, int item, const Place& place, int gate) {
  if constexpr (SUMS) {
    const float* from = shared + row_of_unit(gate, place.unit) * SUM_STRIDE + place.row;
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int kw = 0; kw < KW; kw += 2) {
      even += from[kw * ROWS * SUM_STRIDE];
      if (kw + 1 < KW) odd += from[(kw + 1) * ROWS * SUM_STRIDE];
    }
    return even + odd;
  } else if constexpr (PAIRED) {
    return sums[item / (2 * NT) * 2 + gate / 2][item / 2 % NT][gate % 2 * 2 + item % 2];
  } else {
    constexpr int TILES_OF_UNIT = IS_BACKWARD ? 1 : GATES;
    return sums[item / (4 * NT) * TILES_OF_UNIT + gate][item / 4 % NT][item / 2 % 2 * 2 + item % 2];
  }
}
