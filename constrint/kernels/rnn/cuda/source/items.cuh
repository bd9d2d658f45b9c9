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
    constexpr int ACROSS = U / CHUNK_UNITS;
    return {chunk % ACROSS * CHUNK_UNITS + lane % CHUNK_UNITS, chunk / ACROSS * 8 + lane / CHUNK_UNITS, chunk < CHUNKS};
  }
  const int column = item % COLUMNS, n = item / COLUMNS % NT, row = DOUBLED ? lane % 4 : n * 8 + lane % 4 * 2 + column;
  if constexpr (PAIRED) return {8 * (warp * (MT / 2) + item / (COLUMNS * NT)) + lane / 4, row, true};
  const int half = item / (COLUMNS * NT) % 2, block = item / (2 * COLUMNS * NT);
  return {16 * (warp * (U / 16 / MW) + block) + lane / 4 + 8 * half, row, true};
}

// Lanes that have a unit and its neighbour differ in this bit.
constexpr int NEIGHBOUR = SUMS ? 1 : 4;

// The row of a tile that a lane reads the operand of.
__device__ __forceinline__ int operand_row(int n) {
  return DOUBLED ? static_cast<int>(threadIdx.x) % 32 / 8 : n * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
}

// Hands the sums of warps that share the depth over to the threads of the pointwise part.
__device__ __forceinline__ void share_sums(const float (&sums)[MT][NT][4], float* shared) {
  if constexpr (SUMS) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mw = warp % MW, kw = warp / MW;
    float* own = shared + (kw * ROWS + mw * MT * 16 + lane / 4) * SUM_STRIDE + lane % 4 * COLUMNS;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile) {
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const float* c = sums[tile][n];
        float *low = own + tile * 16 * SUM_STRIDE + n * 8, *high = low + 8 * SUM_STRIDE;
        if constexpr (DOUBLED) {
          *low = c[0], *high = c[2];
        } else {
          *reinterpret_cast<float2*>(low) = make_float2(c[0], c[1]);
          *reinterpret_cast<float2*>(high) = make_float2(c[2], c[3]);
        }
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
  }
  const int column = item % COLUMNS, n = item / COLUMNS % NT;
  if constexpr (PAIRED) return sums[item / (COLUMNS * NT) * 2 + gate / 2][n][gate % 2 * 2 + column];
  const int half = item / (COLUMNS * NT) % 2, block = item / (2 * COLUMNS * NT);
  return sums[block * (IS_BACKWARD ? 1 : GATES) + gate][n][half * 2 + column];
}
